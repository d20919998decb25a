// SPDX-License-Identifier: Apache-2.0

// Package shape is what a document looks like, said once: as a Go struct with
// tags. [Checker.Decode] fills it from a tree, strictly, and reports what does
// not fit with its place; [Schema] makes the JSON Schema of the same struct, so
// that editors and the parser cannot disagree about a key.
//
// A field is tagged site:"name" or site:"name,required"; enum and doc tags tell
// what may stand there and why. Scalars are [Text], [Flag], [Number] and
// [Words]; [Map] keeps the author's keys in order; [Raw] is decoded later. Rules
// that look at more than one field are not here but beside the types that have
// them. Only packages below spec/site import it.
package shape
