//! Throwaway.
#![allow(missing_docs, clippy::unwrap_used)]
use site::*;
use std::rc::Rc;
use std::time::Duration;
struct P(Limits, std::cell::Cell<u64>);
impl Partition for P {
    fn owns(&self, host: &[u8], _: &str) -> bool {
        host != b"other"
    }
    fn service(&self, _: &str) -> Option<usize> {
        None
    }
    async fn relay(&self, _: usize, _: Ends, _: http::Request<BoundedBody>) -> http::Response<ResponseBody> {
        unreachable!()
    }
    fn record(&self, a: &Access<'_>) {
        self.1.set(self.1.get() + a.duration_us);
    }
    async fn drained(&self) {
        std::future::pending().await
    }
    fn limits(&self) -> &Limits {
        &self.0
    }
}
fn main() {
    let root: std::os::fd::OwnedFd = std::fs::File::open("/tmp/site-bench").unwrap().into();
    let s = Duration::from_secs(30);
    let l = Limits {
        head_bytes: 16384,
        head_timeout: s,
        body_bytes: 1 << 20,
        idle_timeout: s,
        stall_timeout: s,
    };
    let rt = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    tokio::task::LocalSet::new().block_on(&rt, async move {
        let site = Rc::new(Site::new(
            P(l, Default::default()),
            Some(root),
            &["index.html".into()],
        ));
        let li = tokio::net::TcpListener::bind("127.0.0.1:8099").await.unwrap();
        loop {
            let (st, peer) = li.accept().await.unwrap();
            let local = peer;
            let site = site.clone();
            tokio::task::spawn_local(async move {
                let stream = st.into_std().unwrap().into();
                serve(
                    &site,
                    Client {
                        stream,
                        taken: vec![],
                        peer,
                        local,
                    },
                )
                .await;
            });
        }
    });
}
