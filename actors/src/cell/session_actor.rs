//! The session actor: the ractor shell around a driver.
//!
//! Its handler commits, polls an effect once, spawns it if it is pending, and returns: it never awaits a model, a tool or a child. Awaiting
//! parts are boxed, so that an idle actor does not carry its largest handler.

use ractor::{Actor, ActorProcessingErr, ActorRef};

use crate::cell::driver::{Driver, DriverStep};
use crate::delivery::inbox::Wake;

/// The actor of one activation.
pub(crate) struct SessionActor;

impl SessionActor {
    async fn look(me: &ActorRef<Wake>, driver: &mut Driver) -> Result<(), ActorProcessingErr> {
        match Box::pin(driver.step()).await {
            DriverStep::Sleep => {}
            // Through the mailbox, so that stop and kill are handled in between. A cast fails only to a dead actor.
            DriverStep::Again => drop(me.cast(Wake::Look)),
            DriverStep::Stop => me.stop(None),
            DriverStep::Fail(why) => return Err(why.into()),
        }
        Ok(())
    }
}

impl Actor for SessionActor {
    type Msg = Wake;
    type State = Box<Driver>;
    type Arguments = Box<Driver>;

    async fn pre_start(&self, me: ActorRef<Wake>, driver: Box<Driver>) -> Result<Box<Driver>, ActorProcessingErr> {
        driver.inbox.bind(me, driver.state.created.place.depth());
        Ok(driver)
    }

    async fn post_start(&self, me: ActorRef<Wake>, driver: &mut Box<Driver>) -> Result<(), ActorProcessingErr> {
        Box::pin(Self::look(&me, driver)).await
    }

    async fn handle(&self, me: ActorRef<Wake>, _: Wake, driver: &mut Box<Driver>) -> Result<(), ActorProcessingErr> {
        Box::pin(Self::look(&me, driver)).await
    }

    /// Not called after a kill or a panic.
    async fn post_stop(&self, _: ActorRef<Wake>, driver: &mut Box<Driver>) -> Result<(), ActorProcessingErr> {
        driver.undo_start_count();
        driver.stopped();
        Ok(())
    }
}
