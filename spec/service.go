// SPDX-License-Identifier: Apache-2.0

package spec

import "time"

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
