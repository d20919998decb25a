// SPDX-License-Identifier: Apache-2.0

package nics

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/items/item/netif"
	"github.com/caisson-os/caisson/bootagent/items/tunable"
	"github.com/caisson-os/caisson/spec/rules"
)

// kernel is the driver's view of a setting, whose key is interface/group/name.
type kernel struct{}

var _ tunable.Files = kernel{}

// numbers is a structure of linux/ethtool.h that holds a command and then numbers,
// each with its name here.
type numbers struct {
	get, set uint32
	names    []string
}

// groups are the structures. What the driver can do at most stands beside a value,
// as rx-max.
var groups = map[string]numbers{
	"ring": {unix.ETHTOOL_GRINGPARAM, unix.ETHTOOL_SRINGPARAM,
		[]string{"rx-max", "rx-mini-max", "rx-jumbo-max", "tx-max", "rx", "rx-mini", "rx-jumbo", "tx"}},
	"channels": {unix.ETHTOOL_GCHANNELS, unix.ETHTOOL_SCHANNELS,
		[]string{"rx-max", "tx-max", "other-max", "combined-max", "rx", "tx", "other", "combined"}},
	"pause": {unix.ETHTOOL_GPAUSEPARAM, unix.ETHTOOL_SPAUSEPARAM, []string{"autoneg", "rx", "tx"}},
	"coalesce": {unix.ETHTOOL_GCOALESCE, unix.ETHTOOL_SCOALESCE, []string{
		"rx-usecs", "rx-frames", "rx-usecs-irq", "rx-frames-irq", "tx-usecs", "tx-frames", "tx-usecs-irq", "tx-frames-irq",
		"stats-block-usecs", "adaptive-rx", "adaptive-tx", "pkt-rate-low", "rx-usecs-low", "rx-frames-low", "tx-usecs-low", "tx-frames-low",
		"pkt-rate-high", "rx-usecs-high", "rx-frames-high", "tx-usecs-high", "tx-frames-high", "sample-interval"}},
}

func split(key string) (iface, group, name string) {
	iface, rest, _ := strings.Cut(key, "/") // an interface's name holds no slash
	group, name, _ = strings.Cut(rest, "/")
	return iface, group, name
}

// read returns the numbers of an interface.
func (g numbers) read(iface string) ([]uint32, error) {
	data := make([]uint32, 1+len(g.names))
	data[0] = g.get
	if err := netif.Ethtool(iface, unsafe.Pointer(&data[0])); err != nil {
		return nil, err
	}
	return data[1:], nil
}

func (g numbers) write(iface string, values []uint32) error {
	data := append([]uint32{g.set}, values...)
	return netif.Ethtool(iface, unsafe.Pointer(&data[0]))
}

// Read implements tunable.Files.
func (kernel) Read(key string) (string, error) {
	iface, group, name := split(key)
	if err := rules.Interface(iface); err != nil { // one that was looked for and not found
		return "", fs.ErrNotExist
	}
	value, err := read(iface, group, name)
	if errors.Is(err, netif.ErrMissing) {
		return "", fs.ErrNotExist
	}
	return value, err
}

func read(iface, group, name string) (string, error) {
	switch group {
	case "link":
		return readLink(iface, name)
	case "private":
		flags, err := private(iface)
		if err != nil {
			return "", err
		}
		return flags.read(name)
	}
	g := groups[group]
	at := slices.Index(g.names, name)
	if at < 0 {
		return "", fmt.Errorf("there is no setting %s of %s", name, group)
	}
	values, err := g.read(iface)
	if err != nil {
		return "", err
	}
	if rules.NICFlag(group, name) {
		return onOff(values[at] != 0), nil
	}
	return strconv.FormatUint(uint64(values[at]), 10), nil
}

// Write implements tunable.Files.
func (kernel) Write(key, value string) error {
	iface, group, name := split(key)
	if _, err := read(iface, group, name); err != nil {
		return err // also of what a later release set, which has no place here
	}
	switch group {
	case "link":
		return writeLink(iface, name, value)
	case "private":
		flags, err := private(iface)
		if err != nil {
			return err
		}
		return flags.write(iface, name, value == "on")
	}
	g := groups[group]
	n, err := number(value)
	if err != nil {
		return err
	}
	values, err := g.read(iface)
	if err != nil {
		return err
	}
	values[slices.Index(g.names, name)] = n
	return g.write(iface, values)
}

// Writable implements tunable.Files: the driver answers a write.
func (kernel) Writable(string) bool { return true }

// Owner implements tunable.Files.
func (kernel) Owner(key string) uint64 {
	iface, _, _ := split(key)
	index, err := netif.Index(iface)
	if err != nil {
		return 0
	}
	return uint64(index)
}

// Moved says what a key is called by now, by the number of the interface.
func (kernel) Moved(key string, owner uint64) string {
	_, group, name := split(key)
	now := netif.Called(int(min(owner, math.MaxInt32)))
	if now == "" {
		return ""
	}
	return now + "/" + group + "/" + name
}

// most returns the maximum of the driver, where it reports one.
func (kernel) most(key string) (uint32, bool) {
	iface, group, name := split(key)
	g := groups[group]
	at := slices.Index(g.names, name+"-max")
	if at < 0 {
		return 0, false
	}
	values, err := g.read(iface)
	if err != nil {
		return 0, false
	}
	return values[at], true
}

// beside are the settings of the same structure, which a driver may round or change
// along, and for a speed those that it hangs on.
func (k kernel) beside(key string) []string {
	iface, group, name := split(key)
	var keys []string
	names := groups[group].names
	if group == "link" {
		names = []string{"autoneg", "speed", "duplex"}
	}
	for _, other := range names {
		if other != name && !strings.HasSuffix(other, "-max") {
			keys = append(keys, iface+"/"+group+"/"+other)
		}
	}
	return keys
}

func number(value string) (uint32, error) {
	switch value {
	case "on":
		return 1, nil
	case "off":
		return 0, nil
	}
	n, err := strconv.ParseUint(value, 10, 32)
	return uint32(n), err
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

// EthtoolKernel is the Device of this network namespace, by the SIOCETHTOOL ioctl; the
// structures are those of linux/ethtool.h. It asks for the features' names once:
// they are the kernel's, the same for every interface.
type EthtoolKernel struct {
	mu    sync.Mutex
	names []string
}

var _ FeatureDevice = (*EthtoolKernel)(nil)

// NewEthtoolKernel is the kernel as it runs.
func NewEthtoolKernel() *EthtoolKernel { return &EthtoolKernel{} }

// Index implements Device.
func (*EthtoolKernel) Index(name string) (int, error) { return netif.Index(name) }

// Called implements Device.
func (*EthtoolKernel) Called(index int) string { return netif.Called(index) }

// block is ETHTOOL_GFEATURES' answer for 32 features.
type block struct{ available, requested, active, neverChanged uint32 }

const (
	maxBlocks   = 32 // 1024 features; Linux has some 64
	setFeatures = 4  // ETH_SS_FEATURES
)

// Features implements Device.
func (k *EthtoolKernel) Features(name string) (map[string]FeatureState, error) {
	names, err := k.featureNames(name)
	if err != nil {
		return nil, err
	}
	answer := struct {
		cmd, size uint32
		blocks    [maxBlocks]block
	}{cmd: unix.ETHTOOL_GFEATURES, size: blocks(names)}
	if err := netif.Ethtool(name, unsafe.Pointer(&answer)); err != nil {
		return nil, err
	}
	states := make(map[string]FeatureState, len(names))
	for n, feature := range names {
		b, bit := answer.blocks[n/32], uint32(1)<<(n%32)
		states[feature] = FeatureState{
			Changeable: b.available&^b.neverChanged&bit != 0,
			Requested:  b.requested&bit != 0,
			Active:     b.active&bit != 0,
		}
	}
	return states, nil
}

// Change implements Device.
func (k *EthtoolKernel) Change(name string, want map[string]bool) error {
	names, err := k.featureNames(name)
	if err != nil {
		return err
	}
	request := struct {
		cmd, size uint32
		blocks    [maxBlocks]struct{ valid, requested uint32 }
	}{cmd: unix.ETHTOOL_SFEATURES, size: blocks(names)}
	found := 0
	for n, feature := range names {
		on, asked := want[feature]
		if !asked {
			continue
		}
		found++
		request.blocks[n/32].valid |= 1 << (n % 32)
		if on {
			request.blocks[n/32].requested |= 1 << (n % 32)
		}
	}
	if found != len(want) {
		return fmt.Errorf("%s has no such feature among %v", name, sorted(want))
	}
	return netif.Ethtool(name, unsafe.Pointer(&request))
}

func blocks(names []string) uint32 { return uint32(len(names)+31) / 32 }

// featureNames are all the kernel knows, in the order of their bits.
func (k *EthtoolKernel) featureNames(name string) ([]string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.names == nil {
		names, err := netif.Names(name, setFeatures)
		if err == nil && (len(names) == 0 || len(names) > 32*maxBlocks) {
			err = errors.New("the kernel names no features")
		}
		if err != nil {
			return nil, err
		}
		k.names = names
	}
	return k.names, nil
}

// featureGroups are the names that ethtool(8) prints and takes for kernel features of a
// pattern; on means that at least one of them is on. It matches patterns, too:
// newer kernels have members that older ones lack.
var featureGroups = map[string]string{
	"rx-checksumming":              "rx-checksum",
	"tx-checksumming":              "tx-checksum-*",
	"scatter-gather":               "tx-scatter-gather*",
	"tcp-segmentation-offload":     "tx-tcp*-segmentation",
	"udp-fragmentation-offload":    "tx-udp-fragmentation",
	"generic-segmentation-offload": "tx-generic-segmentation",
	"generic-receive-offload":      "rx-gro",
	"large-receive-offload":        "rx-lro",
	"rx-vlan-offload":              "rx-vlan-hw-parse",
	"tx-vlan-offload":              "tx-vlan-hw-insert",
	"ntuple-filters":               "rx-ntuple-filter",
	"receive-hashing":              "rx-hashing",
}

// aliases are ethtool's short names.
var aliases = map[string]string{
	"rx":     "rx-checksumming",
	"tx":     "tx-checksumming",
	"sg":     "scatter-gather",
	"tso":    "tcp-segmentation-offload",
	"ufo":    "udp-fragmentation-offload",
	"gso":    "generic-segmentation-offload",
	"gro":    "generic-receive-offload",
	"lro":    "large-receive-offload",
	"rxvlan": "rx-vlan-offload",
	"txvlan": "tx-vlan-offload",
	"ntuple": "ntuple-filters",
	"rxhash": "receive-hashing",
}

// members are the kernel features of features that a name means. Names are
// exact: a part of a name means nothing.
func members(name string, features map[string]FeatureState) []string {
	if _, ok := features[name]; ok {
		return []string{name}
	}
	if long, ok := aliases[name]; ok {
		name = long
	}
	pattern, ok := featureGroups[name]
	if !ok {
		return nil
	}
	var found []string
	for m := range features {
		if ok, err := path.Match(pattern, m); err == nil && ok {
			found = append(found, m)
		}
	}
	slices.Sort(found)
	return found
}
