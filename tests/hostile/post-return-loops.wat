;; W2: never comes back from the clean-up after `begin`.
(func $clean_up (export "cabi_post_weir:plugin/adapter@0.2.0#[static]exchange.begin") (param i32)
  (loop $again (br $again)))
