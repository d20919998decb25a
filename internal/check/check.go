// SPDX-License-Identifier: Apache-2.0

// Package check holds ordered lists of named checks over one value: a visible
// rule instead of a long function. A test takes each check out in turn and wants
// an attack to succeed, so that no check is there for nothing.
//
// It imports the standard library only; everything may import it.
package check

import "slices"

// Check is one named condition on a value of type T.
type Check[T any] struct {
	Name string
	OK   func(T) error // nil when the value passes
}

// List is a rule: its checks run in order, and a later one may rely on what an
// earlier one established.
type List[T any] []Check[T]

// Run returns the error of the first check that fails, or nil.
func (l List[T]) Run(v T) error {
	for _, c := range l {
		if err := c.OK(v); err != nil {
			return err
		}
	}
	return nil
}

// Without returns a copy of the list that lacks the named check.
func (l List[T]) Without(name string) List[T] {
	return slices.DeleteFunc(slices.Clone(l), func(c Check[T]) bool { return c.Name == name })
}

// With returns a copy of the list in which ok stands in for the named check.
func (l List[T]) With(name string, ok func(T) error) List[T] {
	out := slices.Clone(l)
	for i := range out {
		if out[i].Name == name {
			out[i].OK = ok
		}
	}
	return out
}

// Names returns the names in order.
func (l List[T]) Names() []string {
	out := make([]string, len(l))
	for i, c := range l {
		out[i] = c.Name
	}
	return out
}
