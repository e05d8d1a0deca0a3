//! The oracle must be able to fail: a scheduler that leaves work undone does not pass.

use super::*;

/// Sends calls faster than tokens arrive, and lets time pass.
fn overload(books: &mut Books) -> Option<String> {
    for k in 0..40 {
        let (tenant, lane) = (k % 4, k % 3);
        let mut ticket = ticket(TENANTS[tenant].0, Lane::ALL[lane], books.now);
        ticket.demand.input = 50 + (k as u64 * 37) % 200;
        books.numbers += 1;
        let call =
            Call { number: books.numbers, tenant, ticket, id: None, queued_open: books.open, tag: None };
        match books.scheduler.try_admit(books.now, &call.ticket) {
            Ok(Some(grant)) => {
                let moment = books.moment();
                books.admitted(call, grant, &moment, false);
            }
            Ok(None) => {
                let id = books.scheduler.enqueue(books.now, call.ticket.clone(), call.number);
                books.waiting.insert(call.number, Call { id: Some(id), ..call });
            }
            Err(_) => {}
        }
        for _ in 0..2 {
            books.advance(ms(150));
            if let Some((call, mut grant)) = books.running.pop() {
                grant.mark_sent();
                books.scheduler.release(books.now, grant);
                books.truth.release(books.now, &call, true, Ended::Cancelled);
            }
            books.settle();
            if let Some(stuck) = books.stuck() {
                return Some(stuck);
            }
        }
    }
    None
}

#[test]
fn diligent_driver_leaves_no_call_stuck() {
    assert_eq!(overload(&mut Books::new(World::of_tokens(3_000))), None);
}

#[test]
fn lazy_driver_leaves_calls_stuck() {
    let mut books = Books::new(World::of_tokens(3_000));
    books.patience = 0;
    assert!(overload(&mut books).is_some());
    let mut books = Books::new(World::of_tokens(30_000));
    books.patience = 1;
    books.truth.fix(0);
    books.scheduler.set_limit(0);
    for tenant in [2, 3] {
        books.apply(Event::Arrive {
            tenant,
            lane: 1,
            deadline: 60_000,
            wait: None,
            tokens: 10,
            streams: false,
        });
    }
    books.truth.fix(2);
    books.scheduler.set_limit(2);
    assert_eq!(books.settle(), 1);
    assert!(books.stuck().is_some(), "one of two went");
    books.patience = usize::MAX;
    assert_eq!(books.settle(), 1);
    assert_eq!(books.stuck(), None);
}
