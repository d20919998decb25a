// SPDX-License-Identifier: Apache-2.0

package attack

import "time"

// Service is one row of service.yaml: what somebody who reaches the fleet's service
// tries. Rows without a check and without a test are controls: they must succeed.
type Service struct {
	Name  string `yaml:"name"`
	At    string `yaml:"at"`    // package that runs the row
	Check string `yaml:"check"` // of that package, which must stop it
	Test  string `yaml:"test"`  // of that package, which is the row
	// Report is one that says to be of n1; what is absent is as the node would send it.
	Report *struct {
		Key   string        `yaml:"key"`   // that signs it
		Names string        `yaml:"names"` // the key that it says signed it, where that is another
		Boot  string        `yaml:"boot"`
		Seq   uint64        `yaml:"seq"`
		Grade string        `yaml:"grade"` // of the key that counts
		Ago   time.Duration `yaml:"ago"`   // since that counts; an hour
		Alive bool          `yaml:"alive"` // it reports still
		Owner string        `yaml:"owner"` // node that the signing key is or was of

		GivenUp  bool `yaml:"givenUp"`  // an operator accepted another in place of the signing key
		Awaited  bool `yaml:"awaited"`  // the node has not reported yet, and an operator named another key
		Rivalled bool `yaml:"rivalled"` // another key is offered, and this one comes from elsewhere

		Under string        `yaml:"under"` // name under which a registry has it
		Ahead time.Duration `yaml:"ahead"` // of now: the time that it names

		Layer   string `yaml:"layer"`
		Overlay string `yaml:"overlay"`

		TPM string `yaml:"tpm"`

		Steps int     `yaml:"steps"` // of its boot
		Took  float64 `yaml:"took"`  // milliseconds, each
	} `yaml:"report"`
	// Slot is a proof that comes with a request to free the slot of n1.
	Slot *struct {
		Key   string        `yaml:"key"` // that signs it; "none" for no proof
		Boot  string        `yaml:"boot"`
		Ahead time.Duration `yaml:"ahead"` // of the clock
		Again bool          `yaml:"again"` // it was used before
		Later string        `yaml:"later"` // the key is one of a later boot, and reports from there; the slot was taken here
		Act   string        `yaml:"act"`   // what it is about, where that is not the request
		Group string        `yaml:"group"`
		Fleet string        `yaml:"fleet"`
		Node  string        `yaml:"node"`
	} `yaml:"slot"`
	// Request is one that a browser makes in which an operator is logged in.
	Request *struct {
		Path   string            `yaml:"path"`
		Post   bool              `yaml:"post"`
		Host   string            `yaml:"host"`
		Header map[string]string `yaml:"header"`
	} `yaml:"request"`
	Status int `yaml:"status"` // of the answer to the request
}
