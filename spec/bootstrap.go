// SPDX-License-Identifier: Apache-2.0

package spec

// Bootstrap names whom a node trusts and where it asks; everything else arrives
// signed. A loader has it from site.cpio, a host that caisson did not boot from
// 'caisson-agent enroll'.
type Bootstrap struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"` // KindBootstrap
	Fleet      string   `json:"fleet"`
	Registry   string   `json:"registry"`            // host[:port]/prefix
	Mirrors    []string `json:"mirrors,omitempty"`   // asked in order after Registry
	PlainHTTP  bool     `json:"plainHTTP,omitempty"` // content is signed; TLS hides it from onlookers
	Proxy      string   `json:"proxy,omitempty"`     // URL of an HTTP proxy on the way
	CAs        []string `json:"cas,omitempty"`       // PEM; empty is the loader's own store
	Keys       []string `json:"keys"`                // operator public keys, SPKI PEM
	Threshold  int      `json:"threshold"`           // distinct keys that must have signed, at least 1
	EpochKeys  []string `json:"epochKeys,omitempty"` // keys that alone may raise the epoch
	KernelArgs []string `json:"kernelArgs,omitempty"`
	Node       string   `json:"node,omitempty"`      // name of the one node that this is for: an enrolled host
	Hints      string   `json:"hints,omitempty"`     // URL of the fleet's service, which is told that nothing boots: see [Hint]
	StateDisk  string   `json:"stateDisk,omitempty"` // partition UUID, lower case; empty: the fixed partition named caisson-state

	NewStateDisk *NewStateDisk `json:"newStateDisk,omitempty"` // what to make of an empty disk where there is no state disk
	BootFromDisk bool          `json:"bootFromDisk,omitempty"` // a loader is wanted on the state disk; loaders of 0.9 install none, and say so

	Network []BootNetwork `json:"network,omitempty"` // how the loader reaches the registry
}

// NewStateDisk says which empty disk becomes a node's state disk.
type NewStateDisk struct {
	Disks   []string `json:"disks,omitempty"`   // serial numbers or WWNs; empty: the one fixed disk that is empty
	AtLeast int64    `json:"atLeast,omitempty"` // bytes
}
