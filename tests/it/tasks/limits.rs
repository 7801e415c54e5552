//! The limits on the number and the size of tasks.

use super::*;

/// The maximum number of tasks that have not ended.
const MAX_UNFINISHED: usize = 1_000;

#[tokio::test(start_paused = true)]
async fn number_of_unfinished_tasks_is_limited() {
    let setup = Setup::new([
        calls("hangs", "hangs", TaskMode::Always),
        calls("quick", "quick", TaskMode::Always),
        calls("optional", "quick", TaskMode::Optional),
    ]);
    let mut ids = Vec::new();
    for _ in 0..MAX_UNFINISHED {
        ids.push(setup.start("hangs", json!({})).await);
    }
    let refused = setup.call("quick", json!({})).await;
    let ToolAnswer::Error(error) = refused else { panic!("not refused: {refused:?}") };
    assert_eq!(error.message, "too many tasks: 1000 have not ended; retry later");
    assert!(!setup.server.called().contains(&"quick".to_owned()));
    let plain = setup.call("optional", json!({})).await;
    assert!(matches!(plain, ToolAnswer::Result(_)), "{plain:?}");

    setup.cancel(&ids[0]).await;
    let id = setup.start("quick", json!({})).await;
    assert_eq!(text(&setup.result(&id).await), "done");
}

#[tokio::test(start_paused = true)]
async fn size_of_all_results_is_limited() {
    // A run receives less than 4 MiB by default, and 17 of these results have more than 64 MiB.
    let server = server().says("large", "a".repeat(4 * 1000 * 1000));
    let composites = [calls("large", "large", TaskMode::Always)];
    let setup = Setup::with(composites, server, TaskRegistry::new());
    let mut ended = Vec::new();
    for _ in 0..17 {
        let id = setup.start("large", json!({})).await;
        ended.push(setup.settled(&id).await.payload);
    }
    let TaskPayload::Failed { error } = ended.pop().unwrap() else { panic!("there is room") };
    assert_eq!(error["message"], "the tasks hold more than 67108864 bytes; retry later");
    for payload in ended {
        assert_eq!(payload.status(), TaskStatus::Completed);
    }
    // The results expire, and make room for others.
    advance(HOUR).await;
    let id = setup.start("large", json!({})).await;
    assert_eq!(setup.settled(&id).await.status(), TaskStatus::Completed);
}

#[tokio::test(start_paused = true)]
async fn size_of_answers_is_limited() {
    let setup = Setup::new([approval()]);
    let id = setup.start("approval", json!({})).await;
    setup.questions(&id).await;
    let answer = |key: &str, bytes: usize| {
        let large = json!({ "action": "accept", "content": { "a": "a".repeat(bytes) } });
        let answers = [(key.to_owned(), large)].into();
        by(None, UpdateTaskRequest::new(UpdateTaskParams::new(&*id, answers)))
    };
    let reply = setup.reply(answer("1:first", 64 << 20)).await;
    let message = "the tasks hold more than 67108864 bytes; retry later";
    assert_eq!(reply.error().unwrap().message, message);
    // An answer to another key is ignored, and does not count.
    acknowledged(setup.reply(answer("1:third", 64 << 20)).await);
    assert_eq!(setup.questions(&id).await.len(), 2);
    acknowledged(setup.reply(answer("1:first", 100)).await);
    assert_eq!(setup.questions(&id).await.len(), 1);
}
