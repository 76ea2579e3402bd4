;; W9: a request with 10^6 headers whose names and values are all one buffer of 64 KiB: 122 GiB, to
;; a host that copies.
(memory $memory (export "memory") 256)
(func $begin (export "weir:plugin/adapter@0.2.0#[static]exchange.begin") (param $arguments i32) (result i32)
  (local $header i32)
  (local $end i32)
  (memory.fill (i32.const 0x10000) (i32.const 0x78) (i32.const 0x10000))
  (local.set $header (i32.const 0x20000))
  (local.set $end (i32.add (local.get $header) (i32.const 16_000_000)))
  (loop $again
    (i32.store offset=0 (local.get $header) (i32.const 0x10000))
    (i32.store offset=4 (local.get $header) (i32.const 0x10000))
    (i32.store offset=8 (local.get $header) (i32.const 0x10000))
    (i32.store offset=12 (local.get $header) (i32.const 0x10000))
    (local.set $header (i32.add (local.get $header) (i32.const 16)))
    (br_if $again (i32.lt_u (local.get $header) (local.get $end))))
  (i32.store (i32.const 260) (call $resource_new (i32.const 1)))
  (i32.store (i32.const 264) (i32.const 0)) ;; send
  (i32.store (i32.const 268) (i32.const 48)) ;; method
  (i32.store (i32.const 272) (i32.const 4))
  (i32.store (i32.const 276) (i32.const 56)) ;; path
  (i32.store (i32.const 280) (i32.const 15))
  (i32.store (i32.const 284) (i32.const 0x20000)) ;; headers
  (i32.store (i32.const 288) (i32.const 1_000_000))
  (i32.store (i32.const 292) (i32.const 0)) ;; body
  (i32.store (i32.const 296) (i32.const 0))
  (i32.const 256))
