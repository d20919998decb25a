// SPDX-License-Identifier: Apache-2.0

package oci

import "github.com/caisson-os/caisson/internal/check"

// rules say what artifacts must be. Their exported methods are the package's
// functions of the same names, which use [whole]; tests take checks out of a copy
// and see attacks come through.
type rules struct {
	parse      check.List[*parsed]
	descriptor check.List[placed]
	content    check.List[content]
	document   check.List[document]
	blob       check.List[wanted]
}

// placed is a descriptor and where it stands. rules are those for its inline data.
type placed struct {
	Descriptor
	where string
	rules rules
}

// content is data under the descriptor that it was asked for by.
type content struct {
	Descriptor
	data []byte
}

// document is a manifest that may hold a signed document of a type.
type document struct {
	*Manifest
	documentType string
}

// wanted is a blob before anything of it is read, and its cap in bytes.
type wanted struct {
	Descriptor
	limit int64
}

var whole = rules{
	parse: check.List[*parsed]{
		{Name: "size", OK: manifestCapped},
		{Name: "entries", OK: entriesCapped},
		{Name: "strict", OK: manifestParses},
		{Name: "kind", OK: kindIsWanted},
		{Name: "one kind", OK: kindsAreNotMixed},
		{Name: "version", OK: versionIsTwo},
		{Name: "no nesting", OK: indexIsFlat},
		{Name: "descriptors", OK: descriptorsAreSound},
	},
	descriptor: check.List[placed]{
		{Name: "digest form", OK: digestHasForm},
		{Name: "size range", OK: sizeInRange},
		{Name: "media type", OK: mediaTypeIsThere},
		{Name: "inline data", OK: inlineDataFits},
	},
	content: check.List[content]{
		{Name: "content size", OK: contentHasSize},
		{Name: "content digest", OK: contentHasDigest},
	},
	document: check.List[document]{
		{Name: "artifact type", OK: artifactIsWanted},
		{Name: "document first", OK: documentIsFirst},
		{Name: "flood", OK: bundlesCapped},
	},
	blob: check.List[wanted]{
		{Name: "blob cap", OK: blobCapped},
	},
}
