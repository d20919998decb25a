// SPDX-License-Identifier: Apache-2.0

package track

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

// Found is an overlay that may act; its floor is on disk.
type Found struct {
	Overlay     spec.Overlay
	Generation  state.Generation
	RunsOn      []string // other layers on which what is live of it may be applied
	LeftOut     []string // paths of keys of a later release, which do not act
	Keys        []string // ids of the keys that signed it
	Expires     time.Time
	Unchanged   bool   // what the node has already
	Held        bool   // newer than what the node has, but it does not take it; not remembered
	Why         string // why it is held
	Expired     bool   // its signature; it runs all the same
	Unconfirmed string // why nothing confirms that it is the newest, "" when something does
}

// Axis returns the sync axis of a node that asked and found this.
func (f *Found) Axis() (sync spec.Sync, detail string) {
	switch {
	case f.Held:
		return spec.SyncBehind, fmt.Sprintf("generation %d is there, but %s", f.Generation.Generation, f.Why)
	case f.Expired:
		return spec.SyncExpired, fmt.Sprintf("the overlay expired at %s", f.Expires.UTC().Format(time.RFC3339))
	case f.Unconfirmed != "":
		return spec.SyncUnconfirmed, f.Unconfirmed
	}
	return spec.SyncCurrent, ""
}

// Describe returns the sync axis for an error of Sync.
func Describe(err error) (sync spec.Sync, detail string) {
	switch {
	case err == nil:
		return spec.SyncCurrent, ""
	case refusal.Of(err) != "":
		return spec.SyncRefused(string(refusal.Of(err))), err.Error()
	case errors.Is(err, errNotKept), OfDisk(err):
		return spec.SyncBehind, err.Error()
	}
	return spec.SyncUnreachable, err.Error()
}

// OfDisk reports whether an error is a disk's: no connection ends with one of these.
func OfDisk(err error) bool {
	return errors.Is(err, unix.EIO) || errors.Is(err, unix.EROFS) || errors.Is(err, unix.ENOSPC)
}
