// SPDX-License-Identifier: Apache-2.0

package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"path/filepath"

	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
)

// Boot is the record that the loader leaves in /run for the service: what this
// root is made of and how that was decided. It is gone with the boot.
type Boot struct {
	Mode        spec.Mode        `json:"mode"`
	Node        string           `json:"node"`
	RootID      string           `json:"rootId"`                // random, of this stack
	Disk        string           `json:"disk,omitempty"`        // device of the state disk, "" in memory
	ReadOnly    bool             `json:"readOnly,omitempty"`    // what is written to the state disk stays in memory
	DiskTrouble []string         `json:"diskTrouble,omitempty"` // what is wrong with the state disk, or why one is not used
	Source      spec.Source      `json:"source"`
	Sync        spec.Sync        `json:"sync"`
	SyncDetail  string           `json:"syncDetail,omitempty"`
	Generation  state.Generation `json:"generation"`
	Layer       spec.Layer       `json:"layer"`
	Lease       *Lease           `json:"lease,omitempty"`
	Network     spec.Network     `json:"network,omitzero"`    // the interface of the lease and what it is made of
	Wrote       []string         `json:"wrote,omitempty"`     // files that the handover wrote
	Originals   []item.Entry     `json:"originals,omitempty"` // what stood where the handover wrote files of the overlay, for the journal
	Trace       []spec.Step      `json:"trace,omitempty"`     // of the loader
	Images      Images           `json:"images,omitzero"`
	Live        Live             `json:"live,omitzero"`

	Watchdog int64  `json:"watchdog,omitempty"` // seconds, 0 without one
	Upper    string `json:"upper,omitempty"`    // where the writable part of the root is mounted; "" is paths.RunUpper
}

// InMemory reports whether this node has its images in memory, as one without a state disk.
// They outlive a soft-reboot, and no other.
func (b *Boot) InMemory() bool { return b.Mode != spec.ModeAttached && b.Disk == "" }

// Heard reports whether the registry was reached before this boot; a medium does not show it.
func (b *Boot) Heard() bool {
	return b.Source == spec.SourceFetched && (b.Live.Began != "" || b.Upper == paths.RootUpper)
}

// Images is how what is read of this root's images is compared with what was signed.
type Images struct {
	WhenRead []string `json:"whenRead,omitempty"` // digests of those that the kernel checks block by block; the others were read whole
	Why      string   `json:"why,omitempty"`      // not all of them are
}

// Live holds the running node's notes since the boot; times are seconds since 1970.
type Live struct {
	Asked          int64         `json:"asked,omitempty"` // the registry
	Had            string        `json:"had,omitempty"`   // what it had then first: identity of a root, see spec.RootID
	Began          string        `json:"began,omitempty"` // the root that this machine came up with, where the loader had it from the registry
	SyncSince      int64         `json:"syncSince,omitempty"`
	Health         spec.Health   `json:"health,omitempty"`
	HealthSince    int64         `json:"healthSince,omitempty"`
	Activity       spec.Activity `json:"activity,omitempty"`
	ActivitySince  int64         `json:"activitySince,omitempty"`
	Counts         Counts        `json:"counts,omitzero"`
	MetricsTrouble string        `json:"metricsTrouble,omitempty"` // why the last look could not be published
	TakenBack      *TakenBack    `json:"takenBack,omitempty"`      // the change that was tried last, where it failed
	Up             bool          `json:"up,omitempty"`             // it is in the black box that this boot came up

	Protection Protection          `json:"protection,omitzero"`
	Refused    []spec.RefusedWrite `json:"refused,omitempty"` // of protected parameters, by path; the latest last

	Without *Without `json:"without,omitempty"`
	Stacked string   `json:"stacked,omitempty"` // the layer of this root, where its generation names one that differs in accounts
	// A generation with another layer's accounts that could not be begun on this root.
	ForBoot *ForBoot `json:"forBoot,omitempty"`
	// What is in effect, where that is neither what the loader chose nor current, and why it did
	// not pass its gates, where there is nothing to go back to.
	Applied *state.Generation `json:"applied,omitempty"`
	Stuck   string            `json:"stuck,omitempty"`

	Loader  string   `json:"loader,omitempty"`  // what is wrong with what the disk starts
	Ahead   string   `json:"ahead,omitempty"`   // that it starts a newer loader than is published
	Corrupt []string `json:"corrupt,omitempty"` // images of which the kernel has met a block that is not what was signed
	Sound   []string `json:"sound,omitempty"`   // images that the next boot was told it need not read
}

// ForBoot is an overlay that waits for a reboot, and why.
type ForBoot struct {
	Overlay string `json:"overlay"`
	Reason  string `json:"reason"`
}

// Protection names the parameters that the kernel was asked to protect, and why it does not protect them.
type Protection struct {
	Keys    []string `json:"keys,omitempty"` // noted before it is asked: those that it may protect
	Trouble string   `json:"trouble,omitempty"`
}

// Without is a generation that this root runs without what could cut it off: with that,
// it did.
type Without struct {
	Overlay    string     `json:"overlay"`
	Generation uint64     `json:"generation"`
	Reason     string     `json:"reason"`
	Kept       spec.Items `json:"kept,omitzero"` // of that, what was set before it came
}

// Of reports whether w is about a generation.
func (w *Without) Of(g state.Generation) bool {
	return w != nil && w.Overlay == g.Overlay && w.Generation == g.Generation
}

// Counts are of what happened since this machine started, for its metrics.
type Counts struct {
	Drift       map[string]uint64   `json:"drift,omitempty"`       // found, by kind
	Corrections map[string]uint64   `json:"corrections,omitempty"` // made, by kind
	Fetches     map[string]uint64   `json:"fetches,omitempty"`     // by result: ok, refused, unreachable
	Verified    int64               `json:"verified,omitempty"`    // when the last one was ok
	Transitions map[string]uint64   `json:"transitions,omitempty"` // that changed something, by name, see package decide
	Artifacts   map[string]Artifact `json:"artifacts,omitempty"`   // what runs: overlay, layer
}

// Artifact names a running artifact, and since when it runs.
type Artifact struct {
	Digest string `json:"digest"`
	Since  int64  `json:"since"`
}

// TakenBack is a generation whose change of the running root failed.
type TakenBack struct {
	Generation uint64 `json:"generation"`
	Reason     string `json:"reason"`
}

// Lease is how the loader reached its registry: by what DHCP or a router gave it, or by
// what was given.
type Lease struct {
	Interface string       `json:"interface"`
	MAC       string       `json:"mac"`              // of the card, the first one of a bond
	Static    bool         `json:"static,omitempty"` // nobody was asked for the address
	Address   netip.Prefix `json:"address"`
	Gateway   netip.Addr   `json:"gateway,omitzero"`
	DNS       []netip.Addr `json:"dns,omitempty"`
	Domain    string       `json:"domain,omitempty"`
	Search    []string     `json:"search,omitempty"` // domains in which a name without a dot is looked for
	HostName  string       `json:"hostName,omitempty"`

	MTU    uint32       `json:"-"` // of DHCP; 0 where it says none. Both are the loader's, and not in the record
	Routes []LeaseRoute `json:"-"` // of DHCP, beside that by Gateway
}

// LeaseRoute is a way to a network. Without Via the network is on the link.
type LeaseRoute struct {
	To  netip.Prefix
	Via netip.Addr
}

// SaveBoot writes the record.
func SaveBoot(name string, b *Boot) error {
	data, err := spec.Encode(b)
	if err != nil {
		return err
	}
	return fault.In(durable.WriteFile(name, data, 0o600), "write boot record")
}

// Load reads the record of the root that runs. The one that a soft-reboot led to
// brings its own: that in /run is of the root before, until this one has written there.
func Load(root string) (*Boot, error) {
	b, err := LoadBoot(filepath.Join(root, paths.RunBoot))
	if err != nil {
		return nil, err
	}
	own, err := LoadBoot(filepath.Join(root, paths.RootBoot))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return b, nil
	case err != nil:
		return nil, err
	case own.RootID == b.RootID:
		return b, nil
	}
	return own, nil
}

// LoadBoot reads it. Its absence, on a host that caisson did not boot, is
// fs.ErrNotExist.
func LoadBoot(name string) (*Boot, error) {
	data, err := ownfiles.ReadFile(name, 16<<20) // nothing that is written here comes near it
	var b Boot
	if err == nil {
		err = json.Unmarshal(data, &b) // as with state.json, its writer may be another release
	}
	if err != nil {
		return nil, fmt.Errorf("read boot record: %w", err)
	}
	return &b, nil
}
