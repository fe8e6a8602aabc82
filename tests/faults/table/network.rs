//! Faults between the processes and their server.

use crate::prelude::*;

pub(super) const NO_TIME: Lasts = Lasts::For(Duration::ZERO);

/// Bytes of a reply that arrive before it is cut, in turn.
const CUT_AFTER: [usize; 4] = [0, 1, 4, 20];

pub(super) const PARTITIONED: Fault =
    Fault::new("nothing passes to one of three", |it| it.proxies[0].hold())
        .heal(|it| it.proxies[0].resume());

pub(super) const FAULTS: &[Fault] = &[
    Fault::new("connections cut", |setup| {
        for _ in 0..3 {
            let made: Vec<_> = setup.proxies.iter().map(Proxy::made).collect();
            setup.each(Proxy::cut);
            wait_until("connections are made again", || {
                let mut proxies = setup.proxies.iter().zip(&made);
                proxies.all(|(it, made)| it.made() > *made)
            });
        }
    })
    .until_departed(1),
    Fault::new("replies cut off", |it| cut_replies(it, b"EVALSHA")).lasts(NO_TIME),
    Fault {
        store: |store| store.scripting(false).expect("a sender to connect"),
        ..Fault::new("replies cut off, without scripts", |it| {
            cut_replies(it, b"EXEC")
        })
    }
    .lasts(NO_TIME),
    Fault::new("nothing passes for a while", |it| it.each(Proxy::hold))
        .heal(|it| it.each(Proxy::resume)),
    PARTITIONED,
    Fault::new("half-open connections, until TCP gives up", |it| {
        it.each(Proxy::drop_all)
    })
    .heal(|setup| {
        setup.each(Proxy::heal);
        setup.each(Proxy::cut);
    }),
    Fault::new("half-open connections", |it| it.each(Proxy::drop_all))
        .heal(|it| it.each(Proxy::heal)),
    Fault::new("connections refused", |setup| {
        setup.each(Proxy::refuse);
        setup.each(Proxy::cut);
    })
    .heal(|it| it.each(Proxy::accept)),
    Fault::new("connections reset when made", |setup| {
        // Nobody listens there.
        setup.each(|it| it.lead_to(1));
        setup.each(Proxy::cut);
    })
    .heal(|setup| {
        let port = setup.servers[0].port();
        setup.each(|it| it.lead_to(port));
    }),
    Fault {
        store: |store| store.timeout(Duration::from_secs(5)),
        ..Fault::new("200 ms each way", |setup| {
            setup.each(|it| it.delay(Duration::from_millis(200)))
        })
    }
    // Requests with grants depart first.
    .until_departed(4)
    .heal(|setup| setup.each(|it| it.delay(Duration::ZERO))),
];

/// One after the other by each of the proxies, of commands that take slots.
pub(super) fn cut_replies(setup: &mut Setup, command: &[u8]) {
    let cut: Vec<_> = setup.proxies.iter().map(Proxy::cut_replies).collect();
    for (before, after) in CUT_AFTER.into_iter().enumerate() {
        let proxies = setup.proxies.iter();
        proxies.for_each(|it| it.cut_reply(command, after));
        wait_until("replies are cut", || {
            let mut proxies = setup.proxies.iter().zip(&cut);
            proxies.all(|(it, cut)| it.cut_replies() > cut + before)
        });
    }
}
