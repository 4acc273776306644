//! A specialised server: the worker of a site that calculates, `GET /2+3*4.calc`, and counts primes, `GET
//! /1000.primes`.
//!
//! Runs in: the worker of the site that names it, under its uid, inside its jail. Sees: requests. Never: opens
//! anything.
//!
//! In the configuration: `worker = ["bin/hook"]`, and `[[site.route]]` with `suffix = ".calc"` and `hook = "calc"`, or
//! with `suffix = ".primes"` and `hook = "primes"`.

use std::process::ExitCode;

use bulkhead_server::{Answer, Method, Request, Server, StatusCode};

/// The sum that the path asks for, or the one in the body; a file of that name, where there is no digit in it.
async fn calc(request: Request) -> Answer {
    let path = request.uri().path().trim_start_matches('/').trim_end_matches(".calc").to_owned();
    match *request.method() {
        Method::POST => match request.body().await {
            Ok(body) => answer(&String::from_utf8_lossy(&body)),
            Err(_) => Answer::status(StatusCode::BAD_REQUEST),
        },
        _ if path.bytes().any(|byte| byte.is_ascii_digit()) => answer(&path),
        _ => Answer::Pass,
    }
}

/// LIMIT: the highest number up to which primes are counted: some seconds of a processor's time, which others wait for.
const PRIMES_MAX: u32 = 5_000_000;

/// How many primes there are up to the number in the path. Nothing else of this process goes on meanwhile: a site with
/// such a function has several `workers`.
async fn primes(request: Request) -> Answer {
    let path = request.uri().path().trim_start_matches('/').trim_end_matches(".primes");
    match path.parse() {
        Ok(most) if most <= PRIMES_MAX => Answer::text(format!("{}\n", (2..=most).filter(is_prime).count())),
        _ => Answer::None,
    }
}

fn is_prime(number: &u32) -> bool {
    (2..).take_while(|factor| factor * factor <= *number).all(|factor| !number.is_multiple_of(factor))
}

fn answer(words: &str) -> Answer {
    // What is no sum is not there.
    sum(words).map_or(Answer::None, |number| Answer::text(format!("{words} = {number}\n")))
}

/// Adds up products: `2+3*4`.
fn sum(words: &str) -> Option<i64> {
    let product =
        |words: &str| words.split('*').try_fold(1_i64, |all, one| all.checked_mul(one.trim().parse().ok()?));
    words.split('+').try_fold(0_i64, |all, one| all.checked_add(product(one)?))
}

fn main() -> ExitCode {
    Server::new().hook("calc", calc).hook("primes", primes).run()
}

#[cfg(test)]
mod tests {
    use super::{is_prime, sum};

    #[test]
    fn it_calculates() {
        assert_eq!(sum("2+3*4"), Some(14));
        assert_eq!(sum("9223372036854775807+1"), None);
        assert_eq!(sum("two"), None);
    }

    #[test]
    fn it_counts() {
        let primes: Vec<u32> = (2..=30).filter(is_prime).collect();
        assert_eq!(primes, [2, 3, 5, 7, 11, 13, 17, 19, 23, 29]);
    }
}
