;; The wrong world: a component that offers nothing.
(module)
