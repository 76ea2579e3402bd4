//! The functions that a component exports. Their types are checked when the component is loaded, and only then.
//!
//! The bindings that wasmtime generates check the types of all exports again in each new instance. For an adapter, that took
//! 39,000 instructions a request, nearly half of the instantiation.

use std::marker::PhantomData;

use wasmtime::component::types::ComponentItem;
use wasmtime::component::{
    ComponentExportIndex, ComponentNamedList, Func, Instance, InstancePre, Lift, Lower, TypedFunc,
};
use wasmtime::{Store, format_err};

use crate::guest::Guest;

/// The name and the type of an exported function.
pub(crate) trait Signature {
    /// Its name in its interface, e.g. `[static]exchange.begin`.
    const NAME: &'static str;
    type Parameters<'a>: ComponentNamedList + Lower + Send + Sync;
    /// Its result, as a tuple of one value; `()` if it has none.
    type Results: ComponentNamedList + Lift + Send + Sync + 'static;
}

/// A function that a component exports with this signature.
pub(crate) struct Export<S> {
    index: ComponentExportIndex,
    signature: PhantomData<fn() -> S>,
}

impl<S> Clone for Export<S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for Export<S> {}

/// An exported interface of a component.
pub(crate) struct Interface<'c, H: 'static> {
    component: &'c InstancePre<Guest<H>>,
    index: ComponentExportIndex,
    name: &'static str,
}

impl<'c, H> Interface<'c, H> {
    /// Finds an interface by its name with its version, or with an earlier compatible version.
    pub(crate) fn find(
        component: &'c InstancePre<Guest<H>>,
        name: &'static str,
    ) -> wasmtime::Result<Self> {
        let index = component.component().get_export_index(None, name);
        Ok(Self {
            component,
            index: index.ok_or_else(|| format_err!("it does not export {name}"))?,
            name,
        })
    }

    /// Whether a component exports an interface of this name without its version, such as `weir:plugin/filter-steps`, in
    /// any version. A component that exports it must export the version of the host.
    pub(crate) fn is_exported(component: &InstancePre<Guest<H>>, name: &str) -> bool {
        let component = component.component();
        let exports = component.component_type();
        let mut exports = exports.exports(component.engine());
        exports.any(|(export, _)| export.split('@').next() == Some(name))
    }

    /// Finds a function, and checks its type.
    pub(crate) fn function<S: Signature>(&self) -> wasmtime::Result<Export<S>> {
        let complaint = |what: &str| format_err!("its {} has {what} {}", self.name, S::NAME);
        let component = self.component.component();
        let (item, index) = component
            .get_export(Some(&self.index), S::NAME)
            .ok_or_else(|| complaint("no function"))?;
        let ComponentItem::ComponentFunc(function) = item else {
            return Err(complaint("another item named"));
        };
        function
            .typecheck::<S::Parameters<'_>, S::Results>(&self.component.instance_type())
            .map_err(|error| error.context(complaint("another type of the function")))?;
        Ok(Export {
            index,
            signature: PhantomData,
        })
    }
}

impl<S: Signature> Export<S> {
    /// Calls the function in an instance.
    ///
    /// # Panics
    ///
    /// If the instance is one of another component.
    pub(crate) async fn call<H: Send>(
        self,
        instance: Instance,
        store: &mut Store<Guest<H>>,
        parameters: S::Parameters<'_>,
    ) -> wasmtime::Result<S::Results> {
        let function: Func = instance
            .get_func(&mut *store, self.index)
            .expect("the index belongs to the instance's component");
        // SAFETY: `Interface::function` has checked the type of this function. wasmtime finds no function by an index
        // of another component.
        let function =
            unsafe { TypedFunc::<S::Parameters<'_>, S::Results>::new_unchecked(function) };
        function.call_async(store, parameters).await
    }
}

/// Declares a world's exported functions: `name: Signature = "wit-name" (parameters) -> (result,)`.
macro_rules! exports {
    (
        $(#[$about:meta])*
        $visibility:vis $exports:ident of $interface:tt {
            $($field:ident: $signature:ident = $name:literal ($($parameter:ty),*) -> $results:ty;)*
        }
    ) => {
        $(
            #[doc = concat!("`", $name, "`")]
            $visibility enum $signature {}

            impl $crate::exports::Signature for $signature {
                const NAME: &'static str = $name;
                type Parameters<'a> = ($($parameter,)*);
                type Results = $results;
            }
        )*

        $(#[$about])*
        #[derive(Clone, Copy)]
        $visibility struct $exports {
            $(pub(crate) $field: $crate::exports::Export<$signature>,)*
        }

        impl $exports {
            pub(crate) fn find<H>(
                component: &wasmtime::component::InstancePre<$crate::guest::Guest<H>>,
            ) -> wasmtime::Result<Self> {
                let interface = $crate::exports::Interface::find(component, $interface)?;
                Ok(Self {
                    $($field: interface.function()?,)*
                })
            }
        }
    };
}

pub(crate) use exports;
