use std::fs;

use serde::Serialize;
use templates::{Sources, text_value};
use tokio::runtime::LocalOptions;
use wire::templates::{PublisherToService, ServiceToPublisher};
use wire::{Bytes, Text};
use worker::channel::Channel;

use super::*;
use crate::context;

fn set(text: &str) -> Arc<TemplateSet> {
    Arc::new(TemplateSet::compile(sources(text)).unwrap())
}

fn sources(text: &str) -> Sources {
    let mut sources = Sources::default();
    sources.add("page.html".into(), format!("{text} {{{{ values.company }}}} {{{{ x }}}}")).unwrap();
    sources.values.insert("company".into(), text_value(text));
    sources
}

fn in_runtime(test: impl Future<Output = ()>) {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build_local(LocalOptions::default()).unwrap().block_on(test);
}

#[test]
fn a_request_keeps_the_version_that_it_began_with() {
    let templates = Templates::default();
    templates.activate(set("one"));
    let mut request = Request::get("/");
    request.extensions_mut().insert(templates.current().unwrap());
    templates.activate(set("two"));
    let pages = templates.of(&request);
    assert_eq!(pages.render("page.html", context! { x => "<" }).unwrap(), "one one &lt;");
    assert_eq!(pages.value::<String>("company").as_deref(), Some("one"));
    assert_eq!(pages.value::<u8>("company"), None);
    let later = templates.of(&Request::get("/"));
    assert_eq!(later.value::<String>("company").as_deref(), Some("two"));
    assert_ne!(pages.version(), later.version());
}

#[test]
fn responses_have_the_type_of_their_names_and_mistakes_are_no_pages() {
    #[derive(Serialize)]
    struct About {
        x: u8,
    }
    let templates = Templates::default();
    templates.activate(set("one"));
    let pages = templates.of(&Request::get("/"));
    let response = pages.response("page.html", About { x: 7 });
    assert_eq!(response.headers()["content-type"], "text/html; charset=utf-8");
    assert_eq!(pages.response("page.html", context! {}).status(), 500);
    assert_eq!(pages.response("no.html", ()).status(), 500);
    assert_eq!(content_type("a/feed.xml"), "application/xml");
    assert_eq!(content_type("mail"), "text/plain; charset=utf-8");
}

#[test]
fn a_folder_stands_for_the_publisher_in_tests() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.html"), "{{ x }}").unwrap();
    let cx = crate::Context::for_test(&[]);
    assert!(cx.templates().unwrap_err().to_string().contains("templates = true"));
    let cx = cx.with_templates(folder.path()).unwrap();
    let pages = cx.templates().unwrap().of(&Request::get("/"));
    assert_eq!(pages.render("a.html", context! { x => 1 }).unwrap(), "1");
    fs::write(folder.path().join("a.html"), "{{ x").unwrap();
    assert!(crate::Context::for_test(&[]).with_templates(folder.path()).is_err());
}

type Publisher = Channel<ServiceToPublisher, PublisherToService>;

async fn send(publisher: &Publisher, sources: &Sources, version: u64) {
    publisher.send(&PublisherToService::Version { version }, None).await.unwrap();
    for (name, value) in &sources.values {
        let (name, value) = (Text::new(name.as_str()), value.clone());
        publisher.send(&PublisherToService::Value { name, value }, None).await.unwrap();
    }
    for (name, source) in &sources.templates {
        let (name, source) = (Text::new(name.as_str()), source.as_bytes());
        let (first, second) = source.split_at(source.len() / 2);
        let first = Bytes(first.to_vec());
        publisher
            .send(&PublisherToService::Template { name, complete: false, source: first }, None)
            .await
            .unwrap();
        let source = Bytes(second.to_vec());
        publisher.send(&PublisherToService::More { complete: true, source }, None).await.unwrap();
    }
    publisher.send(&PublisherToService::Stage { version }, None).await.unwrap();
}

async fn answer(publisher: &Publisher) -> ServiceToPublisher {
    publisher.receive().await.unwrap().unwrap().0
}

#[test]
fn versions_are_staged_and_hold_only_once_they_are_activated() {
    in_runtime(async {
        let mut link = PublisherLink::new();
        let (own, other) = sys::seqpacket::pair().unwrap();
        let publisher = Publisher::new(other).unwrap();
        link.attach(own).unwrap();
        let one = sources("one");
        let version = one.version();
        send(&publisher, &one, version).await;
        assert_eq!(answer(&publisher).await, ServiceToPublisher::Staged { version });
        assert!(link.templates().current().is_none());
        publisher.send(&PublisherToService::Activate { version }, None).await.unwrap();
        assert_eq!(answer(&publisher).await, ServiceToPublisher::Active { version });
        link.first().await.unwrap();
        let (served, ()) = tokio::join!(answer(&publisher), async {
            tokio::join!(link.serve(), async {
                publisher.send(&PublisherToService::Go {}, None).await.unwrap();
            });
        });
        assert_eq!(served, ServiceToPublisher::Serving {});
        // Another version, that has not come whole; then one that is discarded.
        let two = sources("two");
        send(&publisher, &two, version).await;
        assert!(matches!(answer(&publisher).await, ServiceToPublisher::Refused { .. }));
        send(&publisher, &two, two.version()).await;
        assert!(matches!(answer(&publisher).await, ServiceToPublisher::Staged { .. }));
        let discard = PublisherToService::Discard { version: two.version() };
        publisher.send(&discard, None).await.unwrap();
        publisher.send(&PublisherToService::Activate { version: two.version() }, None).await.unwrap();
        send(&publisher, &one, version).await;
        assert_eq!(answer(&publisher).await, ServiceToPublisher::Staged { version });
        assert_eq!(link.templates().current().unwrap().0.version(), version);
    });
}

#[test]
fn what_the_publisher_had_begun_is_gone_with_it_and_what_holds_stays() {
    in_runtime(async {
        let mut link = PublisherLink::new();
        let (one, two) = (sources("one"), sources("two"));
        for (sources, has_asked) in [(&one, false), (&two, true)] {
            let (own, other) = sys::seqpacket::pair().unwrap();
            let publisher = Publisher::new(other).unwrap();
            link.attach(own).unwrap();
            if has_asked {
                // It takes requests already.
                assert_eq!(answer(&publisher).await, ServiceToPublisher::Serving {});
            }
            let version = sources.version();
            send(&publisher, sources, version).await;
            assert_eq!(answer(&publisher).await, ServiceToPublisher::Staged { version });
            publisher.send(&PublisherToService::Activate { version }, None).await.unwrap();
            assert_eq!(answer(&publisher).await, ServiceToPublisher::Active { version });
            send(&publisher, &one, one.version()).await;
            answer(&publisher).await;
            drop(publisher);
            // Nobody answers, and nobody is waited for.
            link.serve().await;
            assert_eq!(link.templates().current().unwrap().0.version(), version);
        }
    });
}

#[test]
fn a_publisher_that_goes_without_a_version_is_not_waited_for_long() {
    in_runtime(async {
        let mut link = PublisherLink::new();
        let began = std::time::Instant::now();
        let (own, other) = sys::seqpacket::pair().unwrap();
        link.attach(own).unwrap();
        drop(other);
        assert!(link.first().await.unwrap_err().to_string().contains("no templates have come"));
        assert!(began.elapsed() < std::time::Duration::from_secs(8));
    });
}

#[test]
fn handlers_of_axum_get_the_version_of_their_request() {
    use axum::{Extension, Router, routing::get};
    use tower_service::Service as _;

    in_runtime(async {
        let templates = Templates::default();
        templates.activate(set("one"));
        let handler = |Extension(pages): Extension<Pages>| async move {
            tokio::task::yield_now().await;
            pages.render("page.html", context! { x => 1 }).unwrap()
        };
        let mut router: Router = Router::new().route("/", get(handler));
        let mut request = http::Request::new(axum::body::Body::empty());
        request.extensions_mut().insert(templates.current().unwrap());
        let answered = router.call(request);
        templates.activate(set("two"));
        let page = Response::from(answered.await.unwrap()).into_text().await.unwrap();
        assert_eq!(page, "one one 1");
    });
}
