// Preloaded into a server. Ends the server when stdin closes, which happens however the starting process ends.
process.stdin.on("end", () => process.exit(0));
process.stdin.on("error", () => process.exit(0));
process.stdin.resume();
