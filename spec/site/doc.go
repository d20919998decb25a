// SPDX-License-Identifier: Apache-2.0

// Package site holds a validated configuration and compiles it for each node: to a
// literal overlay and the recipe of a system layer, see package spec. Nothing is
// left for a node to decide; what is undecided here is an error.
//
// It is the front door of the packages below it, each one noun: [Parse] reads
// with package document into a tree (tree) of positioned literals; package
// override chooses for every node one target of each module; package module
// decodes (shape), checks and compiles it, with credential and machine; inventory
// is the nodes; what is wrong goes into one report (report). [Site.Overlay],
// [Site.Compile], [Site.Variants] and [Site.Explain] only put together what the
// modules compiled. Package plan compares a site with what is published, package
// convert makes parts of a site from a host's own files; both stand on this one.
//
// All of it is pure: files come through an [fs.FS], results are values. The command
// line imports it; the agent never does: it brings YAML. docs/site.md and
// docs/divingbell.md describe the format.
package site
