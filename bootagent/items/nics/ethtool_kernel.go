// SPDX-License-Identifier: Apache-2.0

package nics

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/items/item/netif"
)

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
