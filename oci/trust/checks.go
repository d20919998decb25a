// SPDX-License-Identifier: Apache-2.0

package trust

import (
	"cmp"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
	"github.com/caisson-os/caisson/spec/rules"
)

func documentCapped(d *decision) error {
	return refusal.If(len(d.candidate.Document) > oci.MaxOverlay, refusal.Oversize, "overlay of %d bytes", len(d.candidate.Document))
}

func enoughKeysSigned(d *decision) error {
	keys, err := sign.ParsePublics(d.bootstrap.Keys)
	if err != nil {
		return err
	}
	v, err := sign.VerifyOverlay(d.candidate.Bundles, keys, d.bootstrap.Threshold, d.digest)
	if err != nil {
		return err
	}
	d.said, d.keys = v.Predicate, v.Keys
	clock := d.clock
	if d.said.Epoch > d.known.Floor.Epoch {
		clock.Newest = time.Time{} // a raised epoch, which a later check permits, ends what was said before it
	}
	d.now, _ = clock.Now(d.said.IssuedAt)
	return nil
}

func fleetIsOurs(d *decision) error { return isFleet(d.said.Fleet, d.bootstrap.Fleet) }

// isFleet refuses what is signed for another fleet.
func isFleet(said, own string) error {
	return refusal.If(said != own, refusal.WrongFleet, "signed for fleet %q, this is %q", said, own)
}

func nameIsOurs(d *decision) error {
	return refusal.If(d.id.Node != "" && d.said.Node != d.id.Node, refusal.WrongNode, "signed for node %q, this is %q", d.said.Node,
		d.id.Node)
}

func hardwareIsOurs(d *decision) error {
	return refusal.If(!d.id.is(d.said.Match), refusal.WrongMachine, "signed for node %q with %v %v, this machine has %v %v", d.said.Node,
		d.said.Match.MACs, d.said.Match.UUIDs, d.id.MACs, d.id.UUIDs)
}

// coreParses reads what a loader of any release reads. A document that has nothing but what this
// release knows is read once, with its sections: what it is as a whole its core is, too.
func coreParses(d *decision) error {
	unknown, err := spec.DecodeKnown(d.candidate.Document, &d.overlay)
	if d.whole = err == nil && unknown == nil; !d.whole {
		d.overlay = spec.Overlay{}
		if _, err := spec.DecodeKnown(d.candidate.Document, &d.overlay.Core); err != nil {
			return refusal.New(refusal.Overlay, "%w", err)
		}
	}
	if d.overlay.APIVersion != spec.APIVersion || d.overlay.Kind != spec.KindOverlay {
		return refusal.New(refusal.Overlay, "the document is %.40q %.40q", d.overlay.APIVersion, d.overlay.Kind)
	}
	e := d.overlay.OnExpired
	return refusal.If(e != "" && e != "run" && e != "hold", refusal.Overlay, "onExpired is %.40q", e)
}

// needsAreKnown comes before the sections are read: what is missing has a name.
func needsAreKnown(d *decision) error {
	missing := spec.Missing(d.overlay.Needs, spec.Features())
	return refusal.If(missing != nil && !d.coreOnly, refusal.NeedsAgent, "the overlay needs %.200q", missing)
}

// sectionsParse reads the sections that this release has. What a later one added, and
// does not list in needs, is left out.
func sectionsParse(d *decision) error {
	if d.whole {
		return nil
	}
	core := d.overlay.Core
	unknown, err := spec.DecodeKnown(d.candidate.Document, &d.overlay)
	if err != nil {
		d.overlay = spec.Overlay{Core: core}
		if !d.coreOnly {
			return refusal.New(refusal.Overlay, "%w", err)
		}
	}
	d.leftOut = unknown
	return nil
}

// documentAgrees keeps two sources of one truth from drifting apart: the rest of
// the agent reads the document, the checks have read the statement.
func documentAgrees(d *decision) error {
	o := d.overlay
	switch {
	case o.Fleet != d.said.Fleet:
		return refusal.New(refusal.Contradiction, "the overlay is for fleet %q, its statement for %q", o.Fleet, d.said.Fleet)
	case o.Node != d.said.Node:
		return refusal.New(refusal.Contradiction, "the overlay is for node %q, its statement for %q", o.Node, d.said.Node)
	case o.Layer != d.said.Layer:
		return refusal.New(refusal.Contradiction, "the overlay names layer %s, its statement %s", o.Layer, d.said.Layer)
	case !slices.Equal(o.Match.MACs, d.said.Match.MACs) || !slices.Equal(o.Match.UUIDs, d.said.Match.UUIDs):
		return refusal.New(refusal.Contradiction, "the overlay and its statement are bound to other machines")
	}
	return nil
}

// namesArePlain: these names become host names, file names and lines of text.
func namesArePlain(d *decision) error {
	if err := rules.Fleet(d.overlay.Fleet); err != nil {
		return refusal.New(refusal.BadName, "%w", err)
	}
	if err := rules.Node(d.overlay.Node); err != nil {
		return refusal.New(refusal.BadName, "%w", err)
	}
	for _, i := range d.overlay.Network.Interfaces {
		if err := rules.Interface(i.Name); i.Name != "" && err != nil {
			return refusal.New(refusal.BadName, "%w", err)
		}
	}
	return networkIsPlain(d.overlay.Network)
}

// networkIsPlain refuses a control character in what becomes a line of a file of
// systemd-networkd, where a line break would begin a line of its own.
func networkIsPlain(n spec.Network) error {
	lines := slices.Concat(n.DNS, n.Search, n.NTP)
	for _, i := range n.Interfaces {
		lines = slices.Concat(lines, []string{i.MAC, i.Gateway, i.DHCP}, i.Addresses)
		if b := i.Bond; b != nil {
			lines = slices.Concat(lines, []string{b.Mode, b.LACPRate}, b.Members)
		}
		if i.VLAN != nil {
			lines = append(lines, i.VLAN.On)
		}
		for _, r := range i.Routes {
			lines = append(lines, r.To, r.Via)
		}
	}
	for _, line := range lines {
		if strings.ContainsFunc(line, unicode.IsControl) {
			return refusal.New(refusal.BadName, "network setting %.80q", line)
		}
	}
	return nil
}

// pathsStayInPlace is the first of two fences: the items confine their writes
// again, with os.Root.
func pathsStayInPlace(d *decision) error {
	var paths []string
	paths = append(paths, d.overlay.Persist...)
	for _, m := range d.overlay.Items.Mounts {
		paths = append(paths, m.Target)
	}
	for _, s := range d.overlay.Items.Sysctl {
		paths = append(paths, "/"+s.Key)
	}
	if p := d.overlay.Items.Perm; p != nil {
		for _, x := range p.Paths {
			paths = append(paths, x.Path)
		}
	}
	for _, p := range paths {
		if err := rules.Path(p); err != nil {
			return refusal.New(refusal.BadPath, "%w", err)
		}
	}
	for _, e := range d.overlay.Items.Exec {
		if err := rules.ID(e.Name); err != nil {
			return refusal.New(refusal.BadName, "script: %w", err)
		}
	}
	return nil
}

// epochIsPermitted: going up needs the word of an epoch key, so that an attacker who
// steals the operator's key cannot run ahead of the one who gets it back.
func epochIsPermitted(d *decision) error {
	least := d.known.Floor.Epoch
	if f := d.known.Fleet; f != nil {
		least = max(least, f.Minimum.Epoch)
	}
	switch {
	case d.said.Epoch < least:
		return refusal.New(refusal.Epoch, "epoch %d, this node is at %d", d.said.Epoch, least)
	case d.said.Epoch == d.known.Floor.Epoch:
		return nil
	}
	keys, err := sign.ParsePublics(d.bootstrap.EpochKeys)
	if err != nil {
		return err
	}
	err = sign.VerifyEpoch(d.candidate.Bundles, keys, d.bootstrap.Fleet, d.said.Epoch)
	return refusal.If(err != nil, refusal.Epoch, "epoch %d without permission: %w", d.said.Epoch, err)
}

func notBelowFloor(d *decision) error {
	return refusal.If(d.said.Epoch == d.known.Floor.Epoch && d.said.Generation < d.known.Floor.Generation, refusal.Rollback,
		"generation %d, this node has accepted %d", d.said.Generation, d.known.Floor.Generation)
}

// sameGenerationSameContent: two contents of one generation are a publisher's
// mistake or somebody's choice; a refreshed signature of the same content is neither.
func sameGenerationSameContent(d *decision) error {
	same := d.said.Epoch == d.known.Floor.Epoch && d.said.Generation == d.known.Floor.Generation
	return refusal.If(same && d.known.Overlay != "" && d.known.Overlay != d.digest, refusal.Replay, "generation %d is %s here, now %s",
		d.said.Generation, d.known.Overlay, d.digest)
}

func notBelowFleet(d *decision) error {
	f := d.known.Fleet
	if f != nil && d.said.Epoch == f.Minimum.Epoch && d.said.Generation < f.Minimum.Generation {
		return refusal.New(refusal.Stale, "generation %d, the fleet's least is %d", d.said.Generation, f.Minimum.Generation)
	}
	return nil
}

// signedForLayer: the pair of overlay and layer was signed, not each of them.
func signedForLayer(d *decision) error {
	on := d.known.On
	return refusal.If(on != "" && on != d.said.Layer && !slices.Contains(d.said.RunsOn, on), refusal.WrongLayer,
		"signed for layer %s and %d others, not for %s", d.said.Layer, len(d.said.RunsOn), on)
}

func notRejected(d *decision) error {
	lists := d.known.Reject
	if f := d.known.Fleet; f != nil {
		lists = slices.Concat(lists, f.Reject)
	}
	for _, digest := range []string{d.digest, cmp.Or(d.known.On, d.overlay.Layer)} {
		if slices.Contains(lists, digest) {
			return refusal.New(refusal.Rejected, "%s is on the reject list", digest)
		}
	}
	return nil
}

// notHeldExpired keeps an expired overlay from replacing one that is held.
func notHeldExpired(d *decision) error {
	return refusal.If(d.holds() && d.now.After(d.said.Expires), refusal.Expired, "expired at %s, it is %s or later", d.said.Expires, d.now)
}

// notHeldUnconfirmed keeps a node that holds from taking another overlay while
// nobody confirms that it is the newest one.
func notHeldUnconfirmed(d *decision) error {
	if !d.holds() {
		return nil
	}
	why := d.known.Fleet.Unconfirmed()
	return refusal.If(why != "", refusal.Expired, "%s", why)
}

// holds reports whether the site says to hold and the node has another overlay
// to stay with; a node without one takes what there is rather than not boot.
func (d *decision) holds() bool {
	return d.overlay.OnExpired == "hold" && d.known.Overlay != "" && d.known.Overlay != d.digest
}
