// SPDX-License-Identifier: Apache-2.0

package item

import (
	"encoding/json"
	"slices"
)

// Scope says what a changed thing lives and dies with.
type Scope string

// Scopes of an entry.
const (
	Kernel Scope = "kernel" // until the kernel is left: sysctl, ethtool
	Root   Scope = "root"   // until another root is stacked: files, mounts
	Disk   Scope = "disk"   // as long as the state disk's file system
)

// Scopes are the present identities of the three scopes.
type Scopes struct {
	Kernel string // boot id, /proc/sys/kernel/random/boot_id
	Root   string // root id, written when a root is stacked
	Disk   string // UUID of the file system the state directory is on; "" when it is on tmpfs
}

// ID is the present identity of a scope, "" for one that there is not.
func (s Scopes) ID(scope Scope) string {
	switch scope {
	case Kernel:
		return s.Kernel
	case Root:
		return s.Root
	case Disk:
		return s.Disk
	}
	return ""
}

// Entry holds the value of one key of an item before caisson first changed it.
type Entry struct {
	Item    string          `json:"item"`
	Key     string          `json:"key"`
	Prior   json.RawMessage `json:"prior"`             // the original, in the item's own form
	Applied json.RawMessage `json:"applied,omitempty"` // what the item last set, in its own form
	Scope   Scope           `json:"scope"`
	ScopeID string          `json:"scopeId"` // filled in by the journal
}

// Journal remembers originals. It is durable when Record and Forget return.
type Journal interface {
	// Record adds entries with one fsync. For an (Item, Key) that it holds
	// already the first Prior is kept and Applied is replaced.
	Record(entries ...Entry) error
	// Entries are those of one item, sorted by key.
	Entries(item string) []Entry
	// Forget drops entries, by Item and Key, with one fsync.
	Forget(entries ...Entry) error
}

// Part is the part of a journal that holds the keys of which In is true, for an
// item that is made of others.
type Part struct {
	Journal
	In func(key string) bool
}

// Entries implements Journal.
func (p Part) Entries(item string) []Entry {
	return slices.DeleteFunc(p.Journal.Entries(item), func(e Entry) bool { return !p.In(e.Key) })
}

// Raw is v as JSON, for Prior and Applied. It is for plain structs and strings,
// which always marshal.
func Raw(v any) json.RawMessage {
	raw, err := json.Marshal(v)
	if err != nil {
		panic("item: " + err.Error())
	}
	return raw
}

// ByKey returns entries of one item by their keys.
func ByKey(entries []Entry) map[string]Entry {
	all := map[string]Entry{}
	for _, e := range entries {
		all[e.Key] = e
	}
	return all
}
