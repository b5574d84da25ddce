use corelet::pool::{Acquire, Pool, TcpConnector};

fn orphan(pool: &Pool<TcpConnector>) -> Acquire<'static, TcpConnector> {
    let handle = pool.handle();
    handle.acquire()
}

fn main() {}
