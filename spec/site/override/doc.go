// SPDX-License-Identifier: Apache-2.0

// Package override says what a node gets of a module: the base, or the base with
// exactly one override on top, never two.
//
// A host entry of the node's name goes before every label entry; of the label
// entries that fit, the last one in the file counts alone. Entries that can have
// no effect are reported. Each choice is a [Target]: nodes with the same target
// share what it compiles to. Package tree does the merging, package module the
// compiling; a [Part] knows neither the fleet nor what else a node gets.
package override
