//! Times of files, which a command in the sandbox can set for each file of its user.

use super::*;

/// A command gives all files of a session an old time, so that a start erases its checkpoints. The control: their age by
/// that time.
#[tokio::test]
async fn times_set_by_a_command_erase_no_checkpoints() {
    let mut scene = CheckpointFixture::after_two_runs().await;
    let before = scene.checkpoints.of_session(session()).unwrap().len();
    for (name, _) in files::entries(&scene.session_dir()).unwrap() {
        let file = fs::File::options().write(true).open(scene.session_dir().join(name)).unwrap();
        file.set_modified(std::time::UNIX_EPOCH).unwrap();
    }
    scene.restart();
    scene.write(3, "b", "b by 3\n").await;
    assert_eq!(scene.checkpoints.of_session(session()).unwrap().len(), before + 1);
    let found = files::entries(&scene.session_dir()).unwrap();
    let old = found.iter().filter(|(_, found)| found.modified().unwrap() == std::time::UNIX_EPOCH).count();
    assert!(old >= before, "{old}");
}
