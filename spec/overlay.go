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

import "time"

// APIVersion is the version of every document in this package.
const APIVersion = "caisson.dev/v1alpha1"

// Kinds of documents.
const (
	KindOverlay   = "Overlay"
	KindLayer     = "Layer"
	KindBootstrap = "Bootstrap"
	KindStatus    = "Status"
	KindWhy       = "Why"
)

// Overlay is one node's signed document: literals only, nothing to evaluate.
// Lists are sorted by the compiler so that the same meaning has the same bytes.
//
// It is a core, which every loader reads, and sections beside it, one top-level
// key each. A release that adds a section adds a row to [Features], too, so that
// overlays which use it say so in Needs.
type Overlay struct {
	Core
	NeedsLayer  []NeedsLayer `json:"needsLayer,omitempty"` // of a site without a layer; what a host reports and does not do
	Maintenance *Maintenance `json:"maintenance,omitempty"`
	Pause       *Pause       `json:"pause,omitempty"`
	Agent       *Agent       `json:"agent,omitempty"`
	Services    []Service    `json:"services,omitempty"`
	Confirm     *Confirm     `json:"confirm,omitempty"`
	Gates       *Gates       `json:"gates,omitempty"`
	Swap        *LayerSwap   `json:"swap,omitempty"`
	Secrets     []Secret     `json:"secrets,omitempty"` // since 0.10.0 with secrets
	Items       Items        `json:"items"`             // the last one: the compiler encodes it once for many nodes
}

// NeedsLayer is something that a layer would hold and that a host which caisson
// did not boot cannot be given. It says no secrets: they are the layer's.
type NeedsLayer struct {
	Item string `json:"item"` // apt, uamlite or apparmor
	Key  string `json:"key"`  // package, user or file of profiles
	To   string `json:"to"`   // a version, installed or absent; account; the digest of a profile's text
}

// Pause makes the agent look and report, and change nothing that runs.
type Pause struct {
	Reason string `json:"reason"`
	Until  int64  `json:"until,omitempty"` // seconds since 1970: it enforces again; 0 is without end
}

// Confirm makes a change wait for an operator on the node. Where nobody confirms it, the
// node goes back to what it had.
type Confirm struct {
	Within int64 `json:"within"` // seconds
}

// Core is the part of an overlay that brings a root to life. It is frozen: a
// loader of any release reads that of any other, see [DecodeKnown].
type Core struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"` // KindOverlay
	Fleet      string   `json:"fleet"`
	Node       string   `json:"node"`
	Match      Match    `json:"match"`
	Layer      string   `json:"layer"`                // digest of the layer's manifest, never of an index
	Variant    string   `json:"variant,omitempty"`    // of the layer; a hint for people
	KernelArgs []string `json:"kernelArgs,omitempty"` // in the author's order
	Persist    []string `json:"persist,omitempty"`    // absolute paths kept on the state disk
	Network    Network  `json:"network,omitzero"`
	CAs        []string `json:"cas,omitempty"`       // PEM certificates the node's system store gains
	OnExpired  string   `json:"onExpired,omitempty"` // "run" (when empty) or "hold"
	Needs      []string `json:"needs,omitempty"`     // features that the agent must know, sorted; see Features
}

// Match holds the identifiers by which a machine may claim to be the node. An
// empty Match binds the overlay by name alone.
type Match struct {
	MACs  []string `json:"macs,omitempty"`  // lower case, colon separated
	UUIDs []string `json:"uuids,omitempty"` // SMBIOS product UUID, lower case
}

// Service is a unit of systemd whose files come from a repository of git: one
// commit of it, in an image that the node mounts. The list of an overlay is sorted
// by name.
type Service struct {
	Name        string             `json:"name"`
	Unit        string             `json:"unit"`
	Commit      string             `json:"commit"`            // full, for people: the image says what the files are
	Image       Blob               `json:"image"`             // squashfs
	User        string             `json:"user,omitempty"`    // owns the directories that lead to the files; root when empty
	Package     string             `json:"package,omitempty"` // that the node must have
	Action      string             `json:"action,omitempty"`  // one of the Action constants of services; nothing is done when empty
	Directories []ServiceDirectory `json:"directories"`       // sorted by To
}

// ServiceDirectory is a directory of the image and the place where the node has it.
type ServiceDirectory struct {
	// path in the repository, and in the image; "." is all of it
	From string `json:"from" site:",required" doc:"path in the repository; . is all of it"`
	// absolute and clean
	To   string `json:"to" site:",required" doc:"absolute path on the node"`
	File bool   `json:"file,omitempty" doc:"from is one file, not a directory"`
}

// What is done with the unit of a service when its files have changed. A unit that
// does not run is started in any case but the first.
const (
	ServiceStart           = "start"
	ServiceReload          = "reload"
	ServiceRestart         = "restart"
	ServiceReloadOrRestart = "reload-or-restart"
)

// ServiceStatus is where a service of a node stands.
type ServiceStatus struct {
	Name      string    `json:"name"`
	Unit      string    `json:"unit"`
	Commit    string    `json:"commit"`              // that the node is to have
	Image     string    `json:"image"`               // its digest
	Tracking  Tracking  `json:"tracking"`            // following the overlay, or frozen by an operator of the node
	Reason    string    `json:"reason,omitempty"`    // of a freeze
	Since     time.Time `json:"since,omitzero"`      // of a freeze
	Published string    `json:"published,omitempty"` // the commit of the overlay, of a service that is frozen
	Kept      []string  `json:"kept,omitempty"`      // commits that the node can go back to without asking anybody, the newest first
}
