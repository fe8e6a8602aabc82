//! The ways to name a server.

use super::*;

#[tokio::test]
async fn a_unix_socket_takes_a_database_and_a_password() {
    let binary = std::env::var_os("REDIS_SERVER").unwrap_or_else(|| "redis-server".into());
    let server = RedisServer::start_as(binary, |dir| {
        let path = dir.join("socket").display().to_string();
        vec!["--unixsocket".to_owned(), path]
    });
    server.command::<()>(&["ACL", "SETUSER", "user", "on", ">word", "~*", "+@all"]);
    let path = server.dir().join("socket");
    let url = format!("redis+unix://{}?db=2&user=user&pass=word", path.display());
    let servers = Servers::at(&url).unwrap();
    run(&servers, &[&["SET", "key", "1"]]).await.unwrap();
    assert!(
        server
            .command::<String>(&["INFO", "keyspace"])
            .contains("db2:keys=1")
    );
}

#[tokio::test]
async fn tls_takes_certificates_of_the_user() {
    let server = support::tls::TlsServer::start(&[]);
    let servers = Servers::of_client(server.client());
    assert_ne!(get(&servers).await.unwrap().origin.server, 0);
}

#[tokio::test]
async fn a_connection_that_was_handed_in_has_no_known_server() {
    let server = RedisServer::start();
    let client = server.client();
    let manager = client.get_connection_manager().await.unwrap();
    let connection = client.get_multiplexed_async_connection().await.unwrap();
    let connection = Servers::from(connection);
    for servers in [Servers::from(manager), connection.clone()] {
        assert_eq!(get(&servers).await.unwrap().origin.server, 0);
        assert_eq!(servers.each(soon()).await.unwrap().len(), 1);
        let exclusive = servers.exclusive("key", soon()).await;
        assert!(!exclusive.err().unwrap().is_outage());
    }
    assert_ne!(get(&connection).await.unwrap().origin.connection, 0);
}
