;; W2: never comes back from dropping its exchange.
(func $destructor (export "weir:plugin/adapter@0.2.0#[dtor]exchange") (param i32)
  (loop $again (br $again)))
