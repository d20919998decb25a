// SPDX-License-Identifier: Apache-2.0

// Package undone takes away what protects a node, and wants the fault of docs/faults.md that
// it protects from to end badly: a protection without which all is as well protects from
// nothing, or its test tests nothing.
//
// A row of the table is one text of one file, what stands there instead, and the test of the
// catalogue that has to fail then. The package is compiled with the changed file by
// go build -overlay, so no program has a switch for it, and the tree stays as it is. A text
// that is not in its file exactly once fails the test. What is compiled soon is run by
// TestUndone, all of it by TestLongUndone.
package undone
