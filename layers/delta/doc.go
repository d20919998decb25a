// SPDX-License-Identifier: Apache-2.0

// Package delta makes an image of chunks: of those that other images have, and of
// those that only its registry has.
//
// An image's chunk index is made with it ([WriteIndex]) and lists its chunks by
// sha256. Chunks are cut by content, so an unchanged file has the same ones wherever
// it lies. Who has an older image cuts it by the same rule and finds by the sums
// what the new one shares with it; nothing has to be said about the older one, and
// no pair of versions is special. [Assembly] keeps the account of what is there.
//
// Every chunk is compared with its sum before it is written. The index itself may
// be wrong all the same: whether the whole is as signed, the caller decides.
//
// The package knows no registry and no store: it reads and writes what it is given.
// It imports the standard library. The builder makes indexes, nodes use them.
package delta
