//! How often a request has memory allocated: never, on the cached paths; elsewhere a number that may not grow.

use instructions::client::{Over, Request, get};
use instructions::requests::serve;
use sys::allocations::Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Requests that are counted.
const COUNT: u32 = 200;

/// Allocations for one request of a kept-alive connection, on average.
fn per_request(request: Request) -> f64 {
    let each = serve(request, Over::Plain, None, COUNT, Counting::here);
    each.iter().sum::<u64>() as f64 / f64::from(COUNT)
}

const SMALL: Request = get("/small.txt");
// Once in a while a batch for the log, or a second of the clock.
const NEVER: f64 = 0.05;

/// LIMIT of a test: what grows here is paid by each request; what shrinks is written down.
const AT_MOST: &[(f64, Request)] = &[
    (NEVER, SMALL),
    (NEVER, Request { method: "HEAD", ..SMALL }),
    (NEVER, Request { lines: "If-None-Match: \"another\"\r\n", ..SMALL }),
    (19.5, Request { status: 404, ..get("/none") }),
    (30.5, Request { lines: "Range: bytes=0-4\r\n", status: 206, ..SMALL }),
    (3.5, get("/svc/")),
    (3.5, Request { method: "POST", body: "body\r\n\r\n", ..get("/svc/") }),
    (3.5, get("/up/")),
    (30.5, get("/run/")),
];

#[test]
fn requests_allocate_no_more_than_they_did() {
    for (limit, request) in AT_MOST {
        let count = per_request(*request);
        let what = format!("{count} allocations for {} {}", request.method, request.path);
        eprintln!("{what}");
        assert!(count <= *limit, "{what}, more than {limit}");
    }
}
