//! Orders over real sockets: this test plays the launcher on one side and the administrator on the other.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::Value;
use wire::orders::{AdminToService, ServiceToAdmin};
use wire::{AdminToLauncher, Counters, LauncherToAdmin, Outcome, Role, Shed, Text};
use worker::channel::Channel;

/// The secret with which every order begins.
const SECRET: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

type Launcher = Channel<AdminToLauncher, LauncherToAdmin>;
type ServiceEnd = Channel<AdminToService, ServiceToAdmin>;

/// A running admin role, seen from the launcher.
struct Admin {
    launcher: Launcher,
    socket: PathBuf,
    role: tokio::task::JoinHandle<Result<(), admin::ServeError>>,
}

impl Drop for Admin {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.socket);
    }
}

async fn started() -> Admin {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let socket = std::env::temp_dir().join(format!("bulkhead-admin-{}-{number}.sock", std::process::id()));
    let _ = std::fs::remove_file(&socket);
    let listener = UnixListener::bind(&socket).unwrap();
    let (ours, control) = sys::seqpacket::pair().unwrap();
    let role = tokio::task::spawn_local(admin::serve(worker::ProcessStart { control, say: None, log: None }));
    let launcher = Launcher::new(ours).unwrap();
    let descriptor = std::os::fd::AsFd::as_fd(&listener);
    let send = async |message, descriptor| launcher.send(&message, descriptor).await.unwrap();
    send(LauncherToAdmin::Socket {}, Some(descriptor)).await;
    for (target, name) in ["gate", "packages", "packages/search", "admin"].into_iter().enumerate() {
        let (target, name) = (target as u32, Text::new(name));
        send(LauncherToAdmin::Target { target, name }, None).await;
    }
    send(LauncherToAdmin::Secret { secret: Text::new(SECRET) }, None).await;
    send(LauncherToAdmin::Begin {}, None).await;
    let admin = Admin { launcher, socket, role };
    assert_eq!(admin.received().await, AdminToLauncher::Ready {});
    admin
}

impl Admin {
    async fn received(&self) -> AdminToLauncher {
        self.launcher.receive().await.unwrap().unwrap().0
    }

    async fn send(&self, message: LauncherToAdmin) {
        self.launcher.send(&message, None).await.unwrap();
    }

    /// An administrator, who knows the secret.
    fn ask(&self, command: impl Into<Vec<u8>>) -> tokio::task::JoinHandle<Value> {
        self.send_raw([SECRET.as_bytes(), b"\n", &command.into()].concat())
    }

    /// A client on a thread of its own, as the command is a blocking program.
    fn send_raw(&self, request: impl Into<Vec<u8>>) -> tokio::task::JoinHandle<Value> {
        let (socket, request) = (self.socket.clone(), request.into());
        tokio::task::spawn_blocking(move || {
            let mut stream = UnixStream::connect(socket).unwrap();
            let _ = stream.write_all(&request);
            // A request that was not read to its end makes the kernel report a reset after the answer.
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer);
            let answer = String::from_utf8(answer).unwrap();
            assert_eq!(answer.matches('\n').count(), 1, "one line: {answer:?}");
            serde_json::from_str(&answer).unwrap()
        })
    }
}

fn run(test: impl AsyncFnOnce()) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let limit = Duration::from_secs(30);
    let test = async { tokio::time::timeout(limit, test()).await.unwrap() };
    tokio::task::LocalSet::new().block_on(&runtime, test);
}

fn process(ticket: u32) -> LauncherToAdmin {
    LauncherToAdmin::Process {
        ticket,
        role: Role::Service,
        name: Text::new("packages/search"),
        pid: 77,
        uid: 61_003,
        state: Text::new("serving"),
        restarts: 2,
        age_ms: 1500,
        counters: Counters { connections_now: 1, connections: 9, requests: 30 },
        last_exit: Text::new("killed by signal 9"),
        jit: true,
        oom_kills: 1,
        version: Text::new("1.0"),
        is_before: true,
    }
}

#[test]
fn processes_of_a_service_answer_on_channels_of_their_own() {
    run(async || {
        let admin = started().await;
        let order = r#"{"command":"send","name":"packages/search","order":"flush","argument":"all"}"#;
        let answer = admin.ask(format!("{order}\n"));
        let AdminToLauncher::Send { ticket, target: 2 } = admin.received().await else { panic!() };
        let mut services = Vec::new();
        for worker in [1, 0] {
            let (ours, theirs) = sys::seqpacket::pair().unwrap();
            let channel = LauncherToAdmin::ServiceChannel { ticket, worker };
            let descriptor = std::os::fd::AsFd::as_fd(&theirs);
            admin.launcher.send(&channel, Some(descriptor)).await.unwrap();
            services.push(ServiceEnd::new(ours).unwrap());
        }
        let reason = Text::new("");
        admin.send(LauncherToAdmin::Answer { ticket, outcome: Outcome::Done, reason }).await;
        for service in &services {
            let AdminToService::Order { name, argument } = service.receive().await.unwrap().unwrap().0 else {
                panic!()
            };
            assert_eq!((name.as_str(), argument.as_str()), ("flush", "all"));
            service.send(&ServiceToAdmin::Done { text: Text::new("flushed") }, None).await.unwrap();
        }
        let answers = answer.await.unwrap()["answers"].take();
        let names: Vec<_> = answers.as_array().unwrap().iter().map(|one| one["process"].clone()).collect();
        assert_eq!(names, ["packages/search#1", "packages/search#2"]);
        assert_eq!(answers[1]["answer"], "flushed");
    });
}

fn status_end(ticket: u32, missing: Text<1024>) -> LauncherToAdmin {
    LauncherToAdmin::StatusEnd {
        ticket,
        missing,
        longest_step_us: 2000,
        longest_step: Text::new("end"),
        longest_lately_us: 1000,
        longest_lately: Text::new("message"),
    }
}

#[test]
fn what_was_shed_is_told_for_each_process_with_its_own_ranges() {
    run(async || {
        let admin = started().await;
        let answer = admin.ask("{\"command\":\"conditioning\"}\n");
        let AdminToLauncher::Conditioning { ticket } = admin.received().await else {
            panic!("it was asked what was shed");
        };
        let (gate, site) = (Text::new("gate 0"), Text::new("site packages"));
        let top_range = |address_low, bits, held| LauncherToAdmin::TopRange {
            ticket,
            name: gate.clone(),
            address_high: 0,
            address_low,
            bits,
            held,
            waiting: 1,
        };
        admin.send(top_range(0xffff_0a01_0000, 112, 5)).await;
        admin.send(top_range(1, 128, 3)).await;
        let line = |role, name: &Text<128>, evicted| LauncherToAdmin::Shed {
            ticket,
            role,
            name: name.clone(),
            shed: Shed { evicted, ..Shed::numbered() },
        };
        admin.send(line(Role::Gate, &gate, 40)).await;
        admin.send(line(Role::Site, &site, 0)).await;
        admin.send(LauncherToAdmin::ConditioningEnd { ticket }).await;
        let answer = answer.await.unwrap();
        assert_eq!(answer["ok"], true);
        let [gate, site] = answer["processes"].as_array().unwrap().as_slice() else {
            panic!("two processes: {answer}");
        };
        assert_eq!((&gate["role"], &gate["name"]), (&"gate".into(), &"gate 0".into()));
        assert_eq!(gate["shed"]["evicted"], 40);
        assert_eq!(gate["shed"].as_object().unwrap().len(), 18);
        let ranges = serde_json::json!([
            { "range": "10.1.0.0/16", "held": 5, "waiting": 1 },
            { "range": "::1/128", "held": 3, "waiting": 1 },
        ]);
        assert_eq!(gate["top_ranges"], ranges);
        assert_eq!((&site["name"], &site["top_ranges"]), (&"site packages".into(), &serde_json::json!([])));
    });
}

#[test]
fn a_status_lists_what_the_launcher_says() {
    run(async || {
        let admin = started().await;
        let answer = admin.ask("{\"command\":\"status\"}\n");
        let AdminToLauncher::Status { ticket } = admin.received().await else {
            panic!("a status was asked for");
        };
        admin.send(process(ticket.wrapping_add(5))).await;
        admin.send(process(ticket)).await;
        let missing = Text::new("seccomp");
        let share = LauncherToAdmin::UidShare {
            ticket,
            first: 51_001,
            last: 51_100,
            taken: 80,
            left: 3,
            is_scarce: true,
        };
        admin.send(share).await;
        admin.send(LauncherToAdmin::Before { ticket, processes: 2, is_upgrading: false }).await;
        admin.send(status_end(ticket, missing)).await;
        let answer = answer.await.unwrap();
        assert_eq!(answer["ok"], true);
        assert_eq!(answer["missing"], "seccomp");
        assert_eq!((&answer["longest_step_us"], &answer["longest_lately_us"]), (&2000.into(), &1000.into()));
        assert_eq!((&answer["longest_step"], &answer["longest_lately"]), (&"end".into(), &"message".into()));
        assert_eq!(answer["processes"].as_array().unwrap().len(), 1);
        let process = &answer["processes"][0];
        assert_eq!(process["role"], "service");
        assert_eq!(process["name"], "packages/search");
        assert_eq!(process["pid"], 77);
        assert_eq!(process["uid"], 61_003);
        assert_eq!(process["restarts"], 2);
        assert_eq!(process["age_ms"], 1500);
        assert_eq!(process["connections"], 9);
        assert_eq!(process["last_exit"], "killed by signal 9");
        assert_eq!(process["oom_kills"], 1);
        assert_eq!((&process["version"], &process["is_before"]), (&"1.0".into(), &true.into()));
        let uids = serde_json::json!({
            "range": "51001-51100", "taken": 80, "size": 100, "left": 3, "is_scarce": true,
        });
        assert_eq!(answer["uids"], uids);
        assert_eq!(answer["before"], serde_json::json!({ "processes": 2, "is_upgrading": false }));
        assert_eq!(process["jit"], true);
    });
}

#[test]
fn a_part_of_a_status_is_asked_for_by_numbers_and_says_where_the_next_begins() {
    run(async || {
        let admin = started().await;
        let order =
            "{\"command\":\"status\",\"role\":\"service\",\"site\":\"packages\",\"after\":5,\"limit\":2}\n";
        let answer = admin.ask(order);
        let AdminToLauncher::StatusOf {
            ticket,
            by_role: true,
            role,
            by_site: true,
            site: 1,
            from: 5,
            limit: 2,
        } = admin.received().await
        else {
            panic!("a part of a status was asked for");
        };
        assert_eq!(role, Role::Service);
        admin.send(process(ticket)).await;
        admin.send(LauncherToAdmin::StatusNext { ticket, next: 9 }).await;
        admin.send(status_end(ticket, Text::new(""))).await;
        let answer = answer.await.unwrap();
        assert_eq!((&answer["next"], answer["processes"].as_array().unwrap().len()), (&9.into(), 1));
        for (order, error) in [
            ("{\"command\":\"status\",\"role\":\"servce\"}\n", "did you mean \"service\"?"),
            ("{\"command\":\"status\",\"site\":\"nobody\"}\n", "there is no \"nobody\""),
        ] {
            let answer = admin.ask(order).await.unwrap();
            assert_eq!(answer["usage"], true);
            assert!(answer["error"].as_str().unwrap().contains(error), "{answer}");
        }
    });
}

#[test]
fn processes_with_the_uids_of_a_site_are_asked_for_with_it_alone() {
    run(async || {
        let admin = started().await;
        let answer = admin.ask("{\"command\":\"status\",\"site\":\"packages\",\"alike\":true}\n");
        let AdminToLauncher::StatusAlike { ticket, site: 1 } = admin.received().await else {
            panic!("the processes of a site were asked for, with those of their uids");
        };
        admin.send(process(ticket)).await;
        admin.send(status_end(ticket, Text::new(""))).await;
        assert_eq!(answer.await.unwrap()["processes"].as_array().unwrap().len(), 1);
        for (order, error) in [
            ("{\"command\":\"status\",\"alike\":true}\n", "`alike` goes with a `site`"),
            (
                "{\"command\":\"status\",\"site\":\"packages\",\"alike\":true,\"limit\":1}\n",
                "`alike` goes with a `site`",
            ),
            ("{\"command\":\"status\",\"site\":\"nobody\",\"alike\":true}\n", "there is no \"nobody\""),
        ] {
            let answer = admin.ask(order).await.unwrap();
            assert_eq!(answer["usage"], true);
            assert!(answer["error"].as_str().unwrap().contains(error), "{answer}");
        }
        assert!(admin.launcher.try_receive().is_none());
    });
}

#[test]
fn a_name_that_the_launcher_takes_back_is_unknown() {
    run(async || {
        let admin = started().await;
        admin.send(LauncherToAdmin::Forget { target: 2 }).await;
        admin.send(LauncherToAdmin::Report {}).await;
        assert!(matches!(admin.received().await, AdminToLauncher::Counters { .. }));
        let answer = admin.ask("{\"command\":\"relaunch\",\"name\":\"packages/search\"}\n").await.unwrap();
        assert_eq!(answer["usage"], true);
        assert!(
            !answer["error"].as_str().unwrap().contains("are: gate, packages, packages/search"),
            "{answer}"
        );
        assert!(admin.launcher.try_receive().is_none());
    });
}

#[test]
fn a_relaunch_becomes_a_number_and_waits_for_its_outcome() {
    run(async || {
        let admin = started().await;
        for (outcome, reason) in
            [(Outcome::Done, ""), (Outcome::Failed, "exited with 1"), (Outcome::Busy, "")]
        {
            let answer = admin.ask("{\"command\":\"relaunch\",\"name\":\"packages/search\"}\n");
            let AdminToLauncher::Relaunch { ticket, target: 2 } = admin.received().await else {
                panic!("target 2 was to be relaunched");
            };
            let reason = Text::new(reason);
            let message = LauncherToAdmin::Answer { ticket, outcome, reason: reason.clone() };
            admin.send(message).await;
            let answer = answer.await.unwrap();
            assert_eq!(answer["ok"], outcome == Outcome::Done);
            if outcome == Outcome::Failed {
                assert_eq!(answer["error"], reason.as_str());
            }
        }
    });
}

#[test]
fn an_unknown_name_is_answered_with_the_names_and_never_reaches_the_launcher() {
    run(async || {
        let admin = started().await;
        let answer = admin.ask("{\"command\":\"relaunch\",\"name\":\"packages/serach\"}\n");
        let answer = answer.await.unwrap();
        assert_eq!(answer["ok"], false);
        let error = answer["error"].as_str().unwrap();
        assert!(error.contains("packages/serach"), "{error}");
        assert!(error.contains("did you mean \"packages/search\"?"), "{error}");
        assert_eq!(answer["usage"], true);
        assert!(error.contains("gate, packages, packages/search"), "{error}");
        assert!(admin.launcher.try_receive().is_none());
    });
}

#[test]
fn what_is_no_order_is_refused_and_never_reaches_the_launcher() {
    run(async || {
        let admin = started().await;
        let long = vec![b' '; 5000];
        for request in [b"hello\n".to_vec(), b"{\"command\":\"exec\"}\n".to_vec(), vec![0xff, b'\n'], long] {
            let answer = admin.ask(request).await.unwrap();
            assert_eq!(answer["ok"], false);
        }
        assert!(admin.launcher.try_receive().is_none());
    });
}

#[test]
fn counters_are_reported() {
    run(async || {
        let admin = started().await;
        admin.ask("nonsense\n").await.unwrap();
        admin.send(LauncherToAdmin::Report {}).await;
        let AdminToLauncher::Counters { counters } = admin.received().await else {
            panic!("counters were asked for");
        };
        assert_eq!((counters.connections, counters.requests), (1, 1));
    });
}

#[test]
fn a_stop_is_answered_even_if_the_launcher_is_gone_first() {
    run(async || {
        let admin = started().await;
        let answer = admin.ask("{\"command\":\"stop\"}\n");
        assert!(matches!(admin.received().await, AdminToLauncher::Stop { .. }));
        admin.launcher.finish();
        assert_eq!(answer.await.unwrap()["ok"], true);
    });
}

#[test]
fn its_own_relaunch_is_done_when_the_launcher_retires_it() {
    run(async || {
        let admin = started().await;
        let answer = admin.ask("{\"command\":\"relaunch\",\"name\":\"admin\"}\n");
        let command = admin.received().await;
        assert!(matches!(command, AdminToLauncher::Relaunch { target: 3, .. }));
        admin.launcher.finish();
        assert_eq!(answer.await.unwrap()["ok"], true);
    });
}

#[test]
fn the_end_of_the_control_channel_ends_the_role_after_its_clients() {
    run(async || {
        let mut admin = started().await;
        let status = admin.ask("{\"command\":\"status\"}\n");
        assert!(matches!(admin.received().await, AdminToLauncher::Status { .. }));
        // One that never says anything must not hold the end up.
        let silent = UnixStream::connect(&admin.socket).unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
        let before = std::time::Instant::now();
        admin.launcher.finish();
        assert_eq!(status.await.unwrap()["ok"], false);
        assert!((&mut admin.role).await.unwrap().is_ok());
        assert!(before.elapsed() < Duration::from_secs(3));
        drop(silent);
    });
}

/// As many as fit, and some.
const CROWD: usize = 600;

#[test]
fn a_crowd_that_is_silent_or_slow_keeps_nobody_waiting() {
    run(async || {
        let admin = started().await;
        let under_way = admin.ask("{\"command\":\"status\"}\n");
        let AdminToLauncher::Status { ticket } = admin.received().await else { panic!("no status") };
        let half = format!("{SECRET}\n{{\"command\":\"st");
        let crowd = tokio::task::spawn_blocking({
            let socket = admin.socket.clone();
            move || {
                let connect = |number| {
                    let mut stream = UnixStream::connect(&socket).unwrap();
                    let half = if number % 2 == 0 { &half } else { "" };
                    // Its place may have been given to another one already.
                    let _ = stream.write_all(half.as_bytes());
                    stream
                };
                (0..CROWD).map(connect).collect::<Vec<_>>()
            }
        });
        let mut crowd = crowd.await.unwrap();
        let before = std::time::Instant::now();
        let stop = admin.ask("{\"command\":\"stop\"}\n");
        assert!(matches!(admin.received().await, AdminToLauncher::Stop { .. }));
        // LIMIT: below the 5 s after which the silent are sent away in any case.
        assert!(before.elapsed() < Duration::from_secs(3), "{:?}", before.elapsed());
        // The first of the crowd were told why they had to go; an order under way is not dropped for others.
        let answer = tokio::task::spawn_blocking(move || {
            let mut answer = String::new();
            crowd[1].read_to_string(&mut answer).map(|_| answer)
        });
        assert!(answer.await.unwrap().unwrap().contains("others needed the place"));
        admin.send(status_end(ticket, Text::new(""))).await;
        assert_eq!(under_way.await.unwrap()["ok"], true);
        admin.launcher.finish();
        assert_eq!(stop.await.unwrap()["ok"], true);
    });
}

#[test]
fn orders_over_the_limit_wait_for_the_end_of_others() {
    run(async || {
        let admin = started().await;
        let all: Vec<_> = (0..20).map(|_| admin.ask("{\"command\":\"bans\"}\n")).collect();
        for _ in 0..16 {
            assert!(matches!(admin.received().await, AdminToLauncher::Bans { .. }));
        }
        assert!(admin.launcher.try_receive().is_none());
        drop(all);
    });
}

#[test]
fn without_the_secret_nothing_is_read_and_nobody_is_obeyed() {
    run(async || {
        let admin = started().await;
        let stop = "{\"command\":\"stop\"}\n";
        let (short, other) = (&SECRET[1..], SECRET.replace('0', "1"));
        for said in
            ["", "\n", "\0\n", &format!("{short}\n"), &format!("{other}\n"), &format!("{SECRET} \n"), stop]
        {
            let answer = admin.send_raw(format!("{said}{stop}")).await.unwrap();
            assert_eq!(answer["ok"], false, "{said:?}");
            assert!(
                answer["error"].as_str().unwrap().starts_with("no permission to give orders"),
                "{answer}"
            );
        }
        assert!(admin.launcher.try_receive().is_none());
    });
}

#[test]
fn the_longest_request_is_taken_and_a_longer_one_refused() {
    run(async || {
        let admin = started().await;
        let command = "{\"command\":\"stop\"}";
        let spaces = " ".repeat(admin::REQUEST_MAX - SECRET.len() - command.len() - 2);
        let longest = format!("{command}{spaces}\n");
        let too_long = admin.ask(format!("{command} {spaces}\n")).await.unwrap();
        assert!(too_long["error"].as_str().unwrap().contains("longer than 4096 bytes"), "{too_long}");
        let stopped = admin.ask(longest);
        assert!(matches!(admin.received().await, AdminToLauncher::Stop { .. }));
        admin.launcher.finish();
        assert_eq!(stopped.await.unwrap()["ok"], true);
    });
}
