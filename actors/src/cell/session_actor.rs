//! The session actor: the ractor shell around a driver.
//! Its handler commits, polls an effect once, spawns it if it is pending, and returns: it never awaits a model, a tool or a child. The parts that
//! await are boxed, so that an idle actor does not carry its largest handler.

use ractor::{Actor, ActorProcessingErr, ActorRef};

use crate::cell::driver::{Driver, DriverStep};
use crate::delivery::inbox::Wake;

pub(crate) struct SessionActor;

impl SessionActor {
    async fn run_step(me: &ActorRef<Wake>, activation: &mut Option<Box<Driver>>) -> Result<(), ActorProcessingErr> {
        let Some(driver) = activation else { return Ok(()) };
        match Box::pin(driver.step()).await {
            DriverStep::Sleep => {}
            // Sent through the mailbox, so that stop and kill are handled in between. A cast fails only if the actor is dead.
            DriverStep::Again => drop(me.cast(Wake::CheckInbox)),
            DriverStep::Stop => {
                me.stop(None);
                // Dropped here and not in its supervisor: this thread usually has the memory in its cache.
                *activation = None;
            }
            DriverStep::Fail(why) => return Err(why.into()),
        }
        Ok(())
    }
}

impl Actor for SessionActor {
    type Msg = Wake;
    /// `None` after the session has left memory, until the actor has ended.
    type State = Option<Box<Driver>>;
    type Arguments = Box<Driver>;

    async fn pre_start(&self, me: ActorRef<Wake>, driver: Box<Driver>) -> Result<Self::State, ActorProcessingErr> {
        driver.inbox.bind(me, driver.state.created.place.depth());
        Ok(Some(driver))
    }

    async fn post_start(&self, me: ActorRef<Wake>, driver: &mut Self::State) -> Result<(), ActorProcessingErr> {
        Box::pin(Self::run_step(&me, driver)).await
    }

    async fn handle(&self, me: ActorRef<Wake>, _: Wake, driver: &mut Self::State) -> Result<(), ActorProcessingErr> {
        Box::pin(Self::run_step(&me, driver)).await
    }

    /// Not called after a kill or a panic.
    async fn post_stop(&self, _: ActorRef<Wake>, driver: &mut Self::State) -> Result<(), ActorProcessingErr> {
        if let Some(driver) = driver {
            driver.undo_start_count();
            driver.report_stop();
        }
        Ok(())
    }
}
