// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"cmp"
	"path"
	"reflect"
	"slices"
	"strings"
	"time"
)

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

// kind holds the facts on a kind of items that both halves share.
type kind struct {
	name   string // its key in Items
	class  string // of a change
	why    string
	of     func(*Items) any
	cutter // zero where it cannot cut a node off

	when     When                     // its settings are there at a boot
	early    func(to, from *Items)    // of WhenEarly: copies those that need neither the network nor another unit
	policies []Policy                 // that a setting may have, the usual one first; nil where it cannot be read back
	paths    bool                     // a setting is known by its path
	lasts    bool                     // what it changes can outlive a root: it is on the disk
	programs func(*Items) int         // how many settings have a minute each for programs that it runs; nil: it runs none
	secrets  func(*Items, needSecret) // those that its settings need; nil: none does
}

// needSecret is called with the key of a setting and the secrets that it needs.
type needSecret func(key string, names []string)

// EnforceOrReport are the policies of settings that no kernel protects.
var EnforceOrReport = []Policy{PolicyEnforce, PolicyReport}

// protected are those of what the kernel protects: its own parameters alone.
var protected = append(slices.Clone(EnforceOrReport), PolicyProtect)

// kinds is the one table of kinds: their effects, their policies, what can cut a node off and
// all else that depends on the kind follow from it. What cannot be put back, such as a script,
// and what only a boot reads cuts nothing off. What an author writes of a kind is a row of
// module.All, what a node does one of items.Table.
var kinds = []kind{
	{name: "mounts", class: ClassLive, when: WhenEarly, early: earlyOf(func(i *Items) *[]Mount { return &i.Mounts },
		laterMount), why: "it is mounted at once", of: func(i *Items) any { return i.Mounts }, policies: EnforceOrReport, paths: true,
		programs: func(i *Items) int { return len(i.Mounts) },
		cutter: cuts(func(i *Items) *[]Mount { return &i.Mounts }, func(m Mount) (string, bool) {
			return m.Target, slices.Contains([]string{"/", "/var", "/var/lib"}, m.Target) ||
				below(m.Target, "/etc", "/home", "/root", "/usr", "/var/lib/caisson")
		})},
	{name: "swaps", class: ClassLive, when: WhenEarly, early: earlyOf(func(i *Items) *[]Swap { return &i.Swaps }, nil),
		why: "swap space is used at once", of: func(i *Items) any { return i.Swaps }, policies: EnforceOrReport,
		programs: func(i *Items) int { return len(i.Swaps) }},
	{name: "limits", class: ClassLive, when: WhenAgent, why: "new sessions have the new limits",
		of: func(i *Items) any { return i.Limits }, policies: EnforceOrReport},
	{name: "sysctl", class: ClassLive, when: WhenEarly, early: earlyOf(func(i *Items) *[]Sysctl { return &i.Sysctl },
		laterSysctl), why: "kernel parameters are set at once", of: func(i *Items) any { return i.Sysctl }, policies: protected,
		cutter: cuts(func(i *Items) *[]Sysctl { return &i.Sysctl }, func(s Sysctl) (string, bool) { return s.Key, below(s.Key, "net") })},
	{name: "ethtool", class: ClassLive, when: WhenEarly, early: earlyOf(func(i *Items) *[]Feature { return &i.Ethtool },
		nil), why: "features are set at once", of: func(i *Items) any { return i.Ethtool }, policies: EnforceOrReport,
		cutter: cuts(func(i *Items) *[]Feature { return &i.Ethtool },
			func(f Feature) (string, bool) { return f.Interface + " " + f.Feature, true })},
	{name: "perm", class: ClassLive, when: WhenAgent, why: "owners and modes are set at once",
		of: func(i *Items) any { return i.Perm }, policies: EnforceOrReport, paths: true, lasts: true},
	{name: "exec", class: ClassLive, when: WhenAgent, why: "scripts run in the next pass",
		of: func(i *Items) any { return i.Exec }, lasts: true,
		secrets: func(i *Items, need needSecret) {
			for _, x := range i.Exec {
				need(x.Name, x.SecretNames())
			}
		}},
	{name: "files", class: ClassLive, when: WhenLoader, why: "files are written at once",
		of: func(i *Items) any { return i.Files }, policies: EnforceOrReport, paths: true,
		cutter: cuts(func(i *Items) *[]File { return &i.Files }, func(f File) (string, bool) {
			return f.Path, below(f.Path, "/etc/systemd", "/etc/NetworkManager", "/etc/network", "/etc/netplan", "/etc/ssh", "/etc/pam.d",
				"/etc/nftables.conf", "/etc/nftables.d", "/etc/iptables", "/etc/firewalld", "/etc/ufw", "/etc/udev",
				"/etc/modprobe.d", "/etc/modules", "/etc/modules-load.d",
				"/etc/sysctl.conf", "/etc/sysctl.d", "/etc/hosts", "/etc/hosts.allow", "/etc/hosts.deny", "/etc/nsswitch.conf", "/etc/resolv.conf")
		}).atStart(),
		secrets: func(i *Items, need needSecret) {
			for _, f := range i.Files {
				need(f.Path, f.SecretNames())
			}
		}},
	{name: "modules", class: ClassLive, when: WhenLoader,
		why: "modules are loaded at once; parameters that are read once wait for a reboot",
		of:  func(i *Items) any { return i.Modules }, policies: EnforceOrReport,
		cutter: cutter{
			can: func(i *Items) map[string]any {
				if i.Modules == nil {
					return nil
				}
				return map[string]any{"": *i.Modules}
			},
			drop: func(i *Items) { i.Modules = nil },
			copy: func(to, from *Items) { to.Modules = from.Modules },
		}.atStart()},
	{name: "nics", class: ClassLive, when: WhenEarly, early: earlyOf(func(i *Items) *[]NIC { return &i.NICs }, nil),
		why: "settings of interfaces are set at once; a driver may take its link down for it",
		of:  func(i *Items) any { return i.NICs }, policies: EnforceOrReport,
		cutter: cuts(func(i *Items) *[]NIC { return &i.NICs }, func(n NIC) (string, bool) { return n.ID, true })},
	{name: "units", class: ClassService, when: WhenLoader,
		why: "units are started, stopped and restarted as they ask for", of: func(i *Items) any { return i.Units }, policies: EnforceOrReport,
		programs: func(i *Items) int { return len(i.Units) },
		cutter:   cuts(func(i *Items) *[]Unit { return &i.Units }, func(u Unit) (string, bool) { return u.Name, true }).atStart(),
		secrets: func(i *Items, need needSecret) {
			for _, u := range i.Units {
				need(u.Name, u.SecretNames())
			}
		}},
	{name: "sysfs", class: ClassLive, when: WhenEarly, early: earlyOf(func(i *Items) *[]Sysfs { return &i.Sysfs }, nil),
		why: "attributes are set at once", of: func(i *Items) any { return i.Sysfs }, policies: EnforceOrReport, paths: true,
		cutter: cuts(func(i *Items) *[]Sysfs { return &i.Sysfs }, func(s Sysfs) (string, bool) {
			return s.Path, strings.Contains(s.Path, "/net/") || below(s.Path, "/sys/bus/pci")
		})},
	{name: "passwords", class: ClassLive, when: WhenLoader, why: "the next login asks for the new password",
		of: func(i *Items) any { return i.Passwords }, policies: EnforceOrReport,
		secrets: func(i *Items, need needSecret) {
			for _, p := range i.Passwords {
				need(p.User, []string{p.Secret})
			}
		}},
}

// kindOf returns the row of a kind, the zero one where there is none.
func kindOf(name string) kind {
	if i := slices.IndexFunc(kinds, func(k kind) bool { return k.name == name }); i >= 0 {
		return kinds[i]
	}
	return kind{}
}

// Policies are those that settings of a kind may have; nil where they have none, since they
// cannot be read back: a script runs when it is due.
func Policies(kind string) []Policy { return kindOf(kind).policies }

// KeyIsPath reports whether the settings of a kind are known by their paths.
func KeyIsPath(kind string) bool { return kindOf(kind).paths }

// OutlivesRoot reports whether what a kind changes can be there when its root is gone.
func OutlivesRoot(kind string) bool { return kindOf(kind).lasts }

// Programs returns how many of the items run programs that may take up to a minute.
func (i *Items) Programs() (n int) {
	for _, k := range kinds {
		if k.programs != nil {
			n += k.programs(i)
		}
	}
	return n
}

// withKinds adds the effects of kinds to those of other parts.
func withKinds(parts []Effect) []Effect {
	for _, k := range kinds {
		parts = append(parts, Effect{"items." + k.name, k.class, k.why, func(o *Overlay) any { return k.of(&o.Items) }})
	}
	return parts
}

func below(name string, dirs ...string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool { return name == dir || strings.HasPrefix(path.Clean(name), dir+"/") })
}

// When says before what the settings of a kind are there at a boot. docs/order.md shows the
// whole order.
type When string

// Moments, the first one first.
const (
	WhenLoader When = "loader" // before PID 1 starts
	WhenEarly  When = "early"  // before local-fs.target, network-pre.target and sysinit.target, see bootagent/node/cycle
	WhenRemote When = "remote" // before remote-fs.target, where the network is up
	WhenAgent  When = "agent"  // when the agent's service has started
)

// Whens returns when the settings of each kind are there at a boot.
func Whens() map[string]When {
	whens := map[string]When{}
	for _, k := range kinds {
		whens[k.name] = k.when
	}
	return whens
}

// Later is a setting of a kind of WhenEarly that is there at a later moment.
type Later struct {
	Kind, What string
	When       When
	Why        string
	mount      func(Mount) bool
	key        string // of sysctl
}

// Laters lists them.
var Laters = []Later{
	{Kind: "mounts", What: "types nfs, nfs4, cifs, smb3, ceph, glusterfs, lustre and afs, and option `_netdev`",
		When: WhenRemote, Why: "they need the network",
		mount: func(m Mount) bool {
			return slices.Contains(NetworkTypes, m.Type) || slices.Contains(m.Options, "_netdev")
		}},
	{Kind: "mounts", What: "types `fuse` and `fuse.*`", When: WhenAgent, Why: "their programs may need the network and other services",
		mount: func(m Mount) bool { return m.Type == "fuse" || strings.HasPrefix(m.Type, "fuse.") }},
	{Kind: "mounts", What: "those with `after`",
		When: WhenRemote, Why: "the units that they name start later; the agent's where those start after `remote-fs.target`",
		mount: func(m Mount) bool { return len(m.After) > 0 }},
	{Kind: "sysctl", What: "`kernel.modules_disabled`", When: WhenAgent, Why: "udev still loads drivers", key: "kernel/modules_disabled"},
}

// NetworkTypes are file systems that are mounted over the network.
var NetworkTypes = []string{"nfs", "nfs4", "cifs", "smb3", "ceph", "glusterfs", "lustre", "afs"}

// laterMount reports whether a mount is there later for what it is.
func laterMount(m Mount) bool {
	return slices.ContainsFunc(Laters, func(l Later) bool { return l.mount != nil && l.mount(m) })
}

func laterSysctl(s Sysctl) bool {
	return slices.ContainsFunc(Laters, func(l Later) bool { return l.key != "" && l.key == s.Key })
}

func earlyOf[T any](list func(*Items) *[]T, later func(T) bool) func(to, from *Items) {
	return func(to, from *Items) {
		all := slices.Clone(*list(from))
		if later != nil {
			all = slices.DeleteFunc(all, later)
		}
		*list(to) = all
	}
}

// Early returns the items that are set before sysinit.target. What is on a mount that comes later
// comes later, too.
func (i *Items) Early() (early Items) {
	for _, k := range kinds {
		if k.early != nil {
			k.early(&early, i)
		}
	}
	later := i.Needing(laterMount)
	early.Mounts = slices.DeleteFunc(early.Mounts, func(m Mount) bool { return slices.Contains(later, m.Target) })
	early.Swaps = slices.DeleteFunc(early.Swaps, func(s Swap) bool { return below(s.Device, later...) })
	return early
}

// Remote returns the mounts that are made before remote-fs.target: those that are not early, may
// be made by then, and are on none that may not.
func (i *Items) Remote(may func(Mount) bool) []Mount {
	early := i.Early()
	is := (&early).Needing(func(Mount) bool { return true })
	agents := func(m Mount) bool {
		return slices.ContainsFunc(Laters, func(l Later) bool { return l.When == WhenAgent && l.mount != nil && l.mount(m) })
	}
	later := i.Needing(func(m Mount) bool { return agents(m) || !slices.Contains(is, m.Target) && !may(m) })
	return slices.DeleteFunc(slices.Clone(i.Mounts), func(m Mount) bool { return slices.Contains(append(is, later...), m.Target) })
}

// Needing returns the targets of the mounts that are so, and of all that lie on one of them.
func (i *Items) Needing(so func(Mount) bool) (list []string) {
	for n := -1; n < len(list); {
		n = len(list)
		for _, m := range i.Mounts {
			on := func(path string) bool { return below(path, list...) }
			if !slices.Contains(list, m.Target) && (so(m) || slices.ContainsFunc(m.Paths(), on)) {
				list = append(list, m.Target)
			}
		}
	}
	return list
}

// IsEmpty reports whether there is nothing among the items.
func (i *Items) IsEmpty() bool {
	return !slices.ContainsFunc(kinds, func(k kind) bool {
		v := reflect.ValueOf(k.of(i))
		return v.Kind() == reflect.Slice && v.Len() > 0 || v.Kind() == reflect.Pointer && !v.IsNil()
	})
}
