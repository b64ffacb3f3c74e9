//! The session actor: the ractor shell around a driver.
//!
//! Its handler commits, polls an effect once, spawns it if it is pending, and returns: it never awaits a model, a tool or a child. Awaiting
//! parts are boxed, so that an idle actor does not carry its largest handler.

use ractor::{Actor, ActorProcessingErr, ActorRef};

use crate::cell::driver::{Driver, DriverStep};
use crate::delivery::inbox::Wake;

pub(crate) struct SessionActor;

impl SessionActor {
    async fn look(me: &ActorRef<Wake>, activation: &mut Option<Box<Driver>>) -> Result<(), ActorProcessingErr> {
        let Some(driver) = activation else { return Ok(()) };
        match Box::pin(driver.step()).await {
            DriverStep::Sleep => {}
            // Through the mailbox, so that stop and kill are handled in between. A cast fails only to a dead actor.
            DriverStep::Again => drop(me.cast(Wake::Look)),
            DriverStep::Stop => {
                me.stop(None);
                // Here and not in its supervisor: its memory was allocated by this thread, as a rule, and is in its cache.
                *activation = None;
            }
            DriverStep::Fail(why) => return Err(why.into()),
        }
        Ok(())
    }
}

impl Actor for SessionActor {
    type Msg = Wake;
    /// None when the session has left memory, until the actor has ended.
    type State = Option<Box<Driver>>;
    type Arguments = Box<Driver>;

    async fn pre_start(&self, me: ActorRef<Wake>, driver: Box<Driver>) -> Result<Self::State, ActorProcessingErr> {
        driver.inbox.bind(me, driver.state.created.place.depth());
        Ok(Some(driver))
    }

    async fn post_start(&self, me: ActorRef<Wake>, driver: &mut Self::State) -> Result<(), ActorProcessingErr> {
        Box::pin(Self::look(&me, driver)).await
    }

    async fn handle(&self, me: ActorRef<Wake>, _: Wake, driver: &mut Self::State) -> Result<(), ActorProcessingErr> {
        Box::pin(Self::look(&me, driver)).await
    }

    /// Not called after a kill or a panic.
    async fn post_stop(&self, _: ActorRef<Wake>, driver: &mut Self::State) -> Result<(), ActorProcessingErr> {
        if let Some(driver) = driver {
            driver.undo_start_count();
            driver.stopped();
        }
        Ok(())
    }
}
