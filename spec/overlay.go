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

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

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

// Items are the runtime settings, one list a kind; the agent's order of kinds
// is the order of its own table, not of this struct.
type Items struct {
	Mounts  []Mount   `json:"mounts,omitempty"`
	Limits  []Limit   `json:"limits,omitempty"`
	Sysctl  []Sysctl  `json:"sysctl,omitempty"`
	Ethtool []Feature `json:"ethtool,omitempty"`
	Perm    *Perm     `json:"perm,omitempty"`
	Exec    []Exec    `json:"exec,omitempty"`
	Files   []File    `json:"files,omitempty"`
	Sysfs   []Sysfs   `json:"sysfs,omitempty"`
	Modules *Modules  `json:"modules,omitempty"`
	Units   []Unit    `json:"units,omitempty"`
	NICs    []NIC     `json:"nics,omitempty"`
	Swaps   []Swap    `json:"swaps,omitempty"`

	Passwords []Password `json:"passwords,omitempty"` // since 0.10.0 with secrets
}

// longestScripts caps what the timeouts of scripts may add up to.
const longestScripts = 6 * time.Hour

// ScriptTime returns how long the scripts that are waited for may take.
func (i Items) ScriptTime() time.Duration {
	var all time.Duration
	for _, script := range i.Exec {
		if script.Blocking != "background" {
			all += time.Duration(cmp.Or(script.Timeout, ExecTimeout)) * time.Second
		}
	}
	return min(all, longestScripts)
}

// File is one small file below /etc, written before PID 1 starts and kept so.
// The list is sorted by path.
type File struct {
	Path    string `json:"path"` // absolute, clean, below /etc
	Content string `json:"content"`
	Secret  string `json:"secret,omitempty"` // since 0.10.0 with secrets: name of the one that is its content, in place of Content
	Mode    string `json:"mode,omitempty"`   // octal, "0644" when empty
	Owner   string `json:"owner,omitempty"`  // name or number; root when empty
	Group   string `json:"group,omitempty"`
}

// Password is the password of an account of the layer, which has none there: its hash, as in
// crypt(5), is a secret. The list is sorted by user.
type Password struct {
	User   string `json:"user"`
	Secret string `json:"secret"` // name of the one whose value is the hash
}

// Mount is one file system, see mount(8) and systemd.mount(5).
type Mount struct {
	ID      string   `json:"id"`
	Device  string   `json:"device"` // What=
	Target  string   `json:"target"` // absolute, clean, without a trailing slash
	Type    string   `json:"type"`
	Options []string `json:"options,omitempty"` // in the author's order
	Before  []string `json:"before,omitempty"`  // units
	After   []string `json:"after,omitempty"`   // units
}

// Paths returns what a mount lies on: its target, its device and the directories of an overlay.
func (m Mount) Paths() []string {
	paths := []string{m.Target, m.Device}
	for _, word := range m.Options {
		if key, list, _ := strings.Cut(word, "="); slices.Contains([]string{"lowerdir", "upperdir", "workdir"}, key) {
			paths = append(paths, strings.FieldsFunc(list, func(r rune) bool { return r == ':' })...)
		}
	}
	return paths
}

// Swap is space on a disk or in a file that memory is swapped to, see swapon(8). The
// list is sorted by device.
type Swap struct {
	Device   string `json:"device"`             // path or tag, as that of a mount
	Priority *int   `json:"priority,omitempty"` // the kernel's choice when nil
	Discard  string `json:"discard,omitempty"`  // all, once or pages; none when empty
}

// Limit is one line of limits.conf(5).
type Limit struct {
	ID     string `json:"id"`
	Domain string `json:"domain" site:",required" doc:"user, @group, *, uid range as in 0:, see limits.conf(5)"`
	Type   string `json:"type" site:",required" enum:"hard,soft,-"` // hard, soft or -
	Item   string `json:"item" site:",required"`
	Value  string `json:"value" site:",required" doc:"a number, unlimited, infinity or -1"`
}

// Sysctl is one kernel parameter. Key is the canonical path below /proc/sys
// with slashes, for example "net/ipv4/conf/eth0.100/forwarding", so that a dot
// in an interface name needs no escape. Value is literal text.
type Sysctl struct {
	Key      string `json:"key"`
	Value    string `json:"value"`
	Optional bool   `json:"optional,omitempty"` // a missing key is not a problem (sysctl.d's leading "-")
}

// Sysfs is one attribute below /sys, see sysfs(5), or the affinity of an interrupt
// below /proc/irq. Value is literal text. The list is sorted by path.
type Sysfs struct {
	Path     string `json:"path"` // absolute and clean
	Value    string `json:"value"`
	Optional bool   `json:"optional,omitempty"` // a missing attribute is not a problem
}

// Modules are kernel modules, see modules-load.d(5) and modprobe.d(5). Names have
// underscores, as the kernel spells them; the lists are sorted.
type Modules struct {
	Load       []string          `json:"load,omitempty"`
	Parameters []ModuleParameter `json:"parameters,omitempty"`
	Blacklist  []string          `json:"blacklist,omitempty"` // not loaded by themselves
}

// ModuleParameter is one parameter of a module; it acts when the module is loaded.
type ModuleParameter struct {
	Module string `json:"module"`
	Name   string `json:"name"`
	Value  string `json:"value"`
}

// NIC holds the settings of network interfaces, see ethtool(8). The
// list is sorted by id.
type NIC struct {
	ID       string       `json:"id"`
	Match    NICMatch     `json:"match"`
	Settings []NICSetting `json:"settings"` // sorted by group and name
}

// NICMatch says which interfaces are meant; one field is set.
type NICMatch struct {
	Name   string `json:"name,omitempty" doc:"name of the interface; the entry's name when nothing is given"`
	MAC    string `json:"mac,omitempty" site:","` // lower case, colon separated
	Driver string `json:"driver,omitempty" doc:"driver, as ethtool -i prints it; all its interfaces"`
	PCI    string `json:"pci,omitempty" doc:"place on the PCI bus, as lspci -D prints it"`
}

// String says which interfaces are meant.
func (m NICMatch) String() string {
	for _, f := range [][2]string{{"mac", m.MAC}, {"driver", m.Driver}, {"pci", m.PCI}} {
		if f[1] != "" {
			return f[0] + "=" + f[1]
		}
	}
	return m.Name
}

// NICFeatures is the group of a NICSetting that is a feature, as those of
// Items.Ethtool are.
const NICFeatures = "features"

// NICSetting is one value: Group is ring, channels, coalesce, pause, link, private or
// features, Name as ethtool(8) spells it, and Value a number, on or off, or a duplex.
type NICSetting struct {
	Group string `json:"group"`
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Unit is one unit of systemd, see systemd.unit(5), or by the name system.conf what is so
// for all services, see systemd-system.conf(5). The list is sorted by name.
type Unit struct {
	Name    string   `json:"name"`
	Content string   `json:"content,omitempty"` // its file in /etc/systemd/system; without it, the layer's
	DropIns []DropIn `json:"dropIns,omitempty"` // sorted by name
	State   string   `json:"state,omitempty"`   // enabled, disabled or masked; as it is when empty
	Run     string   `json:"run,omitempty"`     // started or stopped; as it is when empty
	Restart bool     `json:"restart,omitempty"` // it is restarted when its files have changed since it started
}

// DropIn is a file that adds to a unit; Name is without directory and ".conf".
type DropIn struct {
	Name    string `json:"name"`
	Content string `json:"content"`
}

// Words of a unit.
const (
	UnitEnabled  = "enabled"
	UnitDisabled = "disabled"
	UnitMasked   = "masked"
	RunStarted   = "started"
	RunStopped   = "stopped"
)

// Feature is one offload feature of an interface, named as the kernel names it
// (ethtool -k's long names and the kernel's own strings).
type Feature struct {
	Interface string `json:"interface"`
	Feature   string `json:"feature"`
	On        bool   `json:"on"`
}

// Perm is the list of owners and modes to keep on paths outside the layer.
type Perm struct {
	Paths         []PermPath `json:"paths,omitempty"`    // in the author's order: the last one wins
	Rerun         string     `json:"rerun,omitempty"`    // always (when empty), never, once_successfully
	Interval      int64      `json:"interval,omitempty"` // seconds between runs; with each look when 0, never by time when -1
	IgnoreMissing bool       `json:"ignoreMissing,omitempty"`
}

// PermPath is one path or glob. An empty owner, group or mode is left alone.
type PermPath struct {
	Path  string `json:"path" site:",required" doc:"absolute path or pattern"`
	Owner string `json:"owner,omitempty" site:","`
	Group string `json:"group,omitempty" site:","`
	Mode  string `json:"mode,omitempty" site:"permissions" doc:"octal permissions, or as in chmod(1)"`
}

// ExecTimeout is the timeout in seconds of a script that names none.
const ExecTimeout = 1800

// Exec is one script. Intervals are in seconds; -1 is "never by time".
type Exec struct {
	Name string            `json:"name"`
	Data string            `json:"data"` // the script, its first line names the interpreter
	Args []string          `json:"args,omitempty"`
	Env  map[string]string `json:"env,omitempty"`
	// since 0.10.0 with secrets: variables whose values are secrets, by the secret's name
	SecretEnv     map[string]string `json:"secretEnv,omitempty"`
	Rerun         string            `json:"rerun,omitempty"`         // always (when empty), never, once_successfully
	Blocking      string            `json:"blocking,omitempty"`      // foreground (when empty), foreground_halt_pod_on_failure, background
	Timeout       int64             `json:"timeout,omitempty"`       // seconds; 0 is ExecTimeout
	RerunInterval int64             `json:"rerunInterval,omitempty"` // seconds between runs; with each look when 0, never by time when -1
	// seconds between runs after a failure; as RerunInterval when 0, never by time when -1
	RetryInterval int64  `json:"retryInterval,omitempty"`
	RerunMax      int64  `json:"rerunMax,omitempty"`    // runs after a success, a boot; 0 is without bound
	RetryMax      int64  `json:"retryMax,omitempty"`    // runs after a failure, a boot; 0 is without bound
	RerunForget   bool   `json:"rerunForget,omitempty"` // rerun_interval_persist: false
	RetryForget   bool   `json:"retryForget,omitempty"` // retry_interval_persist: false
	Once          string `json:"once,omitempty"`        // per-root (when empty) or per-machine
	Revert        string `json:"revert,omitempty"`      // script that undoes it
	OnFailure     string `json:"onFailure,omitempty"`   // degrade (when empty) or rollback: a live change is taken back

	MemoryMax int64 `json:"memoryMax,omitempty"` // bytes of all that the script starts; 0 sets no limit
	CPUQuota  int64 `json:"cpuQuota,omitempty"`  // percent of one processor, likewise
	TasksMax  int64 `json:"tasksMax,omitempty"`  // processes and threads, likewise
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
