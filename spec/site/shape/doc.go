// SPDX-License-Identifier: Apache-2.0

// Package shape describes what a document looks like, once: as a Go struct with
// tags, or as a table of [Field] where the keys come from one. [Checker.Decode] fills it from a tree, strictly, and reports what does
// not fit with its place; [Schema] makes the JSON Schema of the same struct, so
// that editors and the parser cannot disagree about a key.
//
// A field is tagged site:"name" or site:"name,required"; enum and doc tags tell
// what may stand there and why. Scalars are [Text], [Flag], [Number] and
// [Words]; [Map] keeps the author's keys in order; [Raw] is decoded later. Types of package
// spec are decoded into as they are: a string, a bool, an integer or a list of texts is read
// as one of these, or by a form, as in site:",duration", and [Checker.At] has the places. Rules
// for values are those of package spec/rules, which [Checker.Valid] reports; rules
// for more than one field stand beside the types that have them. Only packages below spec/site import it.
package shape
