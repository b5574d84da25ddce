//! actix-server: it accepts on a thread of its own and has one worker, whose service runs the same connection as tokio's.
//!
//! Routes are boxed services of actix-service, and middleware its transforms. Services are made from factories, and
//! these once for a worker; `startup_factory` makes the services of each connection, `startup_prepared` those of all.

use super::Announce;
use super::cases::{Kit, Passes, Serves, pass};
use super::frames::{ROUTES, answer, first};
use super::memory::Memory;
use super::tokio::serve;
use crate::runtimes::{in_task, tokio::Tokio as Current};
use actix::System;
use actix_server::Server;
use actix_service::boxed::{self, BoxService, BoxServiceFactory};
use actix_service::{Service, ServiceFactory as _, Transform, fn_service, forward_ready};
use anyhow::{Context as _, Result, anyhow};
use bytes::{Bytes, BytesMut};
use std::collections::HashMap;
use std::future::{Future, Ready, ready};
use std::net::{Ipv4Addr, TcpListener};
use std::rc::Rc;
use tokio::net::TcpStream;

pub struct Actix;

impl Kit for Actix {
    type Runtime = Current;

    fn run<T, F>(main: impl FnOnce() -> F + Send + 'static) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + 'static,
    {
        // Its `LocalSet` is tokio's, and so are its tasks.
        Ok(System::new().block_on(async { in_task::<Current, _>(main()).await }))
    }
}

/// Counts who passes.
struct CountingTransform(Passes);

impl<S: Service<BytesMut>> Transform<S, BytesMut> for CountingTransform {
    type Response = S::Response;
    type Error = S::Error;
    type Transform = Counting<S>;
    type InitError = ();
    type Future = Ready<Result<Counting<S>, ()>>;

    fn new_transform(&self, inner: S) -> Self::Future {
        ready(Ok(Counting { inner, passes: self.0.clone() }))
    }
}

struct Counting<S> {
    inner: S,
    passes: Passes,
}

impl<S: Service<BytesMut>> Service<BytesMut> for Counting<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    forward_ready!(inner);

    fn call(&self, request: BytesMut) -> S::Future {
        pass(&self.passes);
        self.inner.call(request)
    }
}

type Factory = BoxServiceFactory<(), BytesMut, Bytes, (), ()>;
type Route = BoxService<BytesMut, Bytes, ()>;

pub struct Routes {
    factories: Vec<(u16, Factory)>,
    services: Rc<HashMap<u16, Route>>,
}

fn factory(passes: &Passes) -> Factory {
    let counting = || CountingTransform(passes.clone());
    let echo = fn_service(|request: BytesMut| ready(Ok(answer(request))));
    let inner = actix_service::apply(counting(), actix_service::apply(counting(), echo));
    boxed::factory(actix_service::apply(counting(), actix_service::apply(counting(), inner)))
}

async fn services(factories: &[(u16, Factory)]) -> Result<HashMap<u16, Route>> {
    let mut services = HashMap::with_capacity(factories.len());
    for (route, factory) in factories {
        let service = factory.new_service(()).await.map_err(|()| anyhow!("a service cannot be made"))?;
        services.insert(*route, service);
    }
    Ok(services)
}

async fn serve_routes(services: &HashMap<u16, Route>, transport: Memory) -> Result<()> {
    serve(transport, async |request| {
        let route =
            first(&request).and_then(|first| services.get(&first)).context("there is no such route")?;
        route.call(request).await.map_err(|()| anyhow!("a request has failed"))
    })
    .await
}

impl Serves for Actix {
    type App = Routes;

    async fn app(passes: Passes) -> Result<Routes> {
        let factories: Vec<_> = (0..ROUTES).map(|route| (route, factory(&passes))).collect();
        let services = Rc::new(services(&factories).await?);
        Ok(Routes { factories, services })
    }

    async fn serve(app: &Routes, transport: Memory) -> Result<()> {
        let services = app.services.clone();
        serve_routes(&services, transport).await
    }

    async fn make_and_serve(app: &Routes, _: &Passes, transport: Memory) -> Result<()> {
        serve_routes(&services(&app.factories).await?, transport).await
    }
}

/// Serves echoes on threads that are where the calling one is, without end.
pub fn serve_echoes(announce: Announce) -> Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    System::new().block_on(async move {
        let service = || {
            fn_service(async |stream: TcpStream| {
                stream.set_nodelay(true)?;
                serve(stream, async |request| Ok(answer(request))).await
            })
        };
        let server = Server::build().workers(1).disable_signals().listen("echo", listener, service)?.run();
        announce(address)?;
        Ok(server.await?)
    })
}
