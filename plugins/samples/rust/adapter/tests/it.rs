//! Acme's adapter as the host drives it.

use acme::translate::Translation;
use weir_sdk::adapter::{Exchange, HttpResponseHead};

#[test]
fn an_answer_is_the_same_however_it_is_cut() {
    let answer = b"data: {\"text\":\"Hel\"}\n\ndata: {\"text\":\"lo\"}\n\ndata: {\"end\":\"done\",\"in\":3,\"out\":2}\n\n";
    let read = |piece_bytes| {
        let (mut exchange, mut events) = (Translation::default(), Vec::new());
        let head = HttpResponseHead {
            status: 200,
            headers: Vec::new(),
        };
        exchange.head(head).expect("a good status");
        for piece in answer.chunks(piece_bytes) {
            exchange.body(piece, &mut events).expect("a sound answer");
        }
        exchange.end(&mut events).expect("a whole answer");
        events
    };
    assert_eq!(read(1), read(answer.len()));
    assert_eq!(read(7).len(), 6);
}
