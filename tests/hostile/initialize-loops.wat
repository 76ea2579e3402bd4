;; W2: never comes out of its initializer, which runs after the start functions.
(func $initialize (export "_initialize")
  (loop $again (br $again)))
