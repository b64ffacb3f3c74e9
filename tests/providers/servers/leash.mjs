// Preloaded into a server: ends it when stdin closes, which it does with the process that started it, however that one ends.
process.stdin.on("end", () => process.exit(0));
process.stdin.on("error", () => process.exit(0));
process.stdin.resume();
