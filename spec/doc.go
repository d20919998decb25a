// SPDX-License-Identifier: Apache-2.0

// Package spec holds the documents that the two halves of caisson agree on.
//
// The builder and the publisher write them, the boot agent reads them, and
// nothing else passes between the two: [Recipe] says what one layer variant is
// made of, [Layer] describes the layer that came out, [Overlay] is all that one
// node needs to know, [Bootstrap] is a loader's built-in configuration, and [Status],
// [Drift] and [Change] say what a node is.
//
// The package is pure: bytes in, values or errors out, the same on a laptop
// and on a node. It never touches a file, a network or the kernel, and it
// imports only the standard library. YAML and everything an author writes by
// hand live in spec/site; here all is literal.
//
// Every document has exactly one valid encoding, see [Encode] and [Decode].
package spec
