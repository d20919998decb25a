// SPDX-License-Identifier: Apache-2.0

// Package site reads what a person writes about a fleet and turns it into what
// a machine can use: literal overlays and recipes, see package spec.
//
// It reads the Site document, Divingbell's Helm values, Armada charts and
// inventories; merges overrides; says all that is wrong at once and where; and
// tells for every value where it came from. It never touches a system: files
// come through an [fs.FS], results are values. Nothing here decides on a node;
// what is undecided when this package is done is an error.
//
// The way through it: [Parse] reads files into a tree of literal scalars with
// positions (value.go), finds the documents in them (source.go) and merges them.
// The nine modules of conf and the machine settings stand in one table
// (module.go); each is merged for one target of its own (override.go), decoded
// strictly (decode.go) and checked and compiled by one function in a file of its
// name. [Site.Overlay], [Site.Variants], [Site.Explain] and [Site.Plan] only put
// together what the modules compiled.
//
// The command line and the builder's tests import it; the agent never does: it
// brings YAML. docs/site.md and docs/divingbell.md describe the format.
package site
