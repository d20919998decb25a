// SPDX-License-Identifier: Apache-2.0

package attack

// Rubbish is one row of places.yaml: what a place answers for a document that another
// place has right.
type Rubbish struct {
	Name   string `yaml:"name"`
	Status int    `yaml:"status"` // of HTTP; 200
	Type   string `yaml:"type"`   // Content-Type; that of a manifest
	Body   string `yaml:"body"`
	// As makes the body of the document itself: "half" of its manifest, "bare" without
	// its content, "old" the one before, "unsigned", by a "stranger", the "other" kind.
	As   string `yaml:"as"`
	Hang string `yaml:"hang"` // "before" anything is said, "after" the body, or it comes as a "trickle"
}
