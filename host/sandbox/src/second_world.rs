//! A world of a test, beside the one of adapters: what is the same for every plugin is written once.

use wasmtime::component::HasSelf;

use wasmtime::Store;
use wasmtime::component::{InstancePre, Linker};

use crate::engine::{Engine, Room};
use crate::guest::{Guest, GuestError};
use crate::limits::GuestLimits;
use crate::loading::{self, LoadError};
use crate::world::{Program, Sandbox, World};

mod bindings {
    wasmtime::component::bindgen!({
        inline: "
            package test:second@0.1.0;

            interface policy {
                limit: func() -> u32;
            }

            interface greeter {
                greet: func(times: u32) -> u32;
            }

            world second {
                import policy;
                export greeter;
            }
        ",
        imports: { default: async | trappable },
        exports: { default: async },
    });
}

/// Greets as often as it is asked to, up to what its policy allows; spins where it is asked for nothing.
const GREETER: &str = r#"
    (component
      (import "test:second/policy@0.1.0" (instance $policy (export "limit" (func (result u32)))))
      (core func $limit (canon lower (func $policy "limit")))
      (core module $code
        (import "policy" "limit" (func $limit (result i32)))
        (func (export "greet") (param $times i32) (result i32)
          (loop $again (br_if $again (i32.eqz (local.get $times))))
          (select (local.get $times) (call $limit) (i32.lt_u (local.get $times) (call $limit)))))
      (core instance $guest (instantiate $code
        (with "policy" (instance (export "limit" (func $limit))))))
      (func $greet (param "times" u32) (result u32) (canon lift (core func $guest "greet")))
      (instance $greeter (export "greet" (func $greet)))
      (export "test:second/greeter@0.1.0" (instance $greeter)))
"#;

/// What the operator allows.
struct Policy {
    limit: u32,
}

enum Second {}

impl bindings::test::second::policy::Host for Guest<Policy> {
    async fn limit(&mut self) -> wasmtime::Result<u32> {
        Ok(self.host.limit)
    }
}

impl World for Second {
    type Host = Policy;
    type Prepared = bindings::SecondPre<Guest<Policy>>;
    type Exports = bindings::Second;
    type Plugin = Program<Self>;

    const NAME: &'static str = "test:second/second@0.1";
    const EXPORT: &'static str = "test:second/greeter";
    const IMPORTS: &'static [&'static str] = &["test:second/policy@0.1."];

    fn link(linker: &mut Linker<Guest<Policy>>) -> wasmtime::Result<()> {
        bindings::test::second::policy::add_to_linker::<_, HasSelf<_>>(linker, |guest| guest)
    }

    fn prepare(component: InstancePre<Guest<Policy>>) -> wasmtime::Result<Self::Prepared> {
        bindings::SecondPre::new(component)
    }

    async fn instantiate(
        component: &Self::Prepared,
        store: &mut Store<Guest<Policy>>,
    ) -> wasmtime::Result<bindings::Second> {
        component.instantiate_async(store).await
    }

    async fn admit(program: Program<Self>) -> Result<Self::Plugin, LoadError> {
        Ok(program)
    }
}

async fn greet(program: &Program<Second>, limit: u32, times: u32) -> Result<u32, GuestError> {
    let mut instance = program.start(Policy { limit }).await?;
    instance
        .call(async |exports, store| exports.test_second_greeter().call_greet(store, times).await)
        .await
}

/// Another world needs no copy of the engine, the load steps or the limits.
#[tokio::test]
async fn a_second_world_is_loaded_and_bounded_like_the_first() {
    let engine = Engine::start(Room {
        guests: 2,
        memory_bytes: 64 << 20,
    })
    .expect("the engine starts");
    let sandbox = Sandbox::<Second>::new(&engine).expect("its imports are linked");
    let component = wat::parse_str(GREETER).expect("it is sound");
    let limits = GuestLimits {
        cpu_ms: std::num::NonZeroU64::new(20).expect("it is more"),
        ..GuestLimits::default()
    };
    let load = async |bytes: &[u8]| loading::load(&sandbox, None, &limits, "greeter", bytes).await;
    let program = load(&component).await.expect("it passes every step");
    assert_eq!(program.contract(), "0.1.0");
    assert_eq!(greet(&program, 3, 2).await, Ok(2));
    assert_eq!(
        greet(&program, 3, 9).await,
        Ok(3),
        "each guest has its own policy"
    );
    assert_eq!(greet(&program, 3, 0).await, Err(GuestError::CpuBudget));
    let nothing = wat::parse_str("(component)").expect("it is sound");
    assert!(matches!(
        load(&nothing).await,
        Err(LoadError::World {
            world: Second::NAME,
            ..
        })
    ));
    let foreign = wat::parse_str(GREETER.replace("test:second/policy", "evil:host/policy"));
    assert!(matches!(
        load(&foreign.expect("it is sound")).await,
        Err(LoadError::Imports { refused, .. }) if refused == ["evil:host/policy@0.1.0"]
    ));
}
