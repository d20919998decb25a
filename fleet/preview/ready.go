// SPDX-License-Identifier: Apache-2.0

package preview

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/caisson-os/caisson/builder"
	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/fleet/policy"
	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/report"
)

// Beside are the files that verbs find beside a site by themselves.
type Beside struct {
	Lock   string // of packages, see 'caisson lock'
	Memory string // of the publisher
}

// Check adds to a report what verbs would refuse. Nothing is asked of values that are not
// a Site: they are not published as they are.
//
// It sees what the files beside the site show: keys, files that are named, locks, the publisher's
// memory. It asks the functions that the verbs ask, and no network. What is wrong with the text of a
// site is said by package spec/site.
func Check(s *site.Site, beside Beside, r *report.Report) {
	if s.At() == (report.Pos{}) {
		return
	}
	for _, p := range policy.Problems(s) {
		r.Add(p)
	}
	for _, f := range s.Files() {
		if err := readable(f.Name); err != nil {
			r.Add(report.Problem{At: f.At, Path: f.Path, Severity: report.Error, Rule: "file",
				Message: fmt.Sprintf("read %s: %v", f.Name, err), Hint: "names are relative to the file that they stand in"})
		}
	}
	checkLayers(s, beside.Lock, r)
	for _, v := range s.Services().List {
		if why := s.Services().Unlocked(&v); why != "" {
			r.Add(report.Problem{At: v.At(), Path: v.Name, Severity: report.Warning, Rule: "lock",
				Message: "the service has no commit to be published at, and publish refuses it: " + why, Hint: "caisson services update"})
		}
	}
	if _, err := publish.OpenMemory(beside.Memory); err != nil {
		r.Add(report.Problem{File: beside.Memory, Severity: report.Error, Rule: "file", Message: err.Error(),
			Hint: "take it from version control: publish refuses to go on without"})
	}
	if n, err := s.Oversized(); err != nil {
		r.Add(report.Problem{At: n.At(), Path: "nodes", Severity: report.Error, Rule: "too-large", Message: err.Error(),
			Hint: "move large scripts and files into a package"})
	}
}

// readable reports why a file cannot be read; nil where it can.
func readable(name string) error {
	f, err := os.Open(name)
	if err == nil {
		defer f.Close() // only read
		var info fs.FileInfo
		if info, err = f.Stat(); err == nil && !info.Mode().IsRegular() {
			return errors.New("it is not a file")
		}
	}
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err
	}
	return err
}

// checkLayers reports a layer that nothing could bake, and a lock that a build would refuse.
func checkLayers(s *site.Site, name string, r *report.Report) {
	if !s.HasLayer() {
		return
	}
	variants, err := s.Variants()
	if err != nil {
		return // it has a layer
	}
	say := func(severity, rule, hint, format string, args ...any) {
		r.Add(report.Problem{At: s.Layer().At(), Path: "layer", Severity: severity, Rule: rule,
			Message: fmt.Sprintf(format, args...), Hint: hint})
	}
	_, err = os.Stat(release.BootCertificate(s))
	signs := err == nil
	for _, v := range variants {
		if err := builder.Check(v.Recipe); err != nil {
			say(report.Error, "layer", "", "build refuses variant %s: %v", v.Name, err)
		}
		if k := v.Recipe.Kernel; signs && strings.HasPrefix(k, "linux-image-") && strings.HasSuffix(k, "-unsigned") {
			say(report.Warning, "layer", "name "+strings.TrimSuffix(k, "-unsigned"),
				"variant %s: nobody signed the modules of %s: a kernel that firmware verified loads none of them", v.Name, k)
		}
	}
	const update = "'caisson lock --update' writes it"
	lock, err := builder.ReadLock(name)
	if err != nil {
		r.Add(report.Problem{File: name, Severity: report.Error, Rule: "lock", Message: err.Error(), Hint: update})
	}
	if lock == nil {
		return
	}
	for _, v := range variants {
		switch l, ok := lock.Variants[v.Name]; {
		case !ok:
			say(report.Warning, "lock", update, "%s has no variant %q: build refuses it", name, v.Name)
		case !l.Of(v.Recipe):
			say(report.Warning, "lock", update, "%s is older than the site, variant %q has other packages or another base: "+
				"build refuses it", name, v.Name)
		}
	}
}

// Texts returns files that services bring to nodes of the site.
type Texts func(ctx context.Context, s *site.Site, nodes []string) ([][]site.Text, error)

// Ask has the programs of layers that were built with a cache look at the files of nodes that are to
// be published, and at those that brought returns; nil is none. A refusal is an error. It returns
// a sentence for each layer whose programs were not asked about such files.
func (w Preview) Ask(ctx context.Context, nodes []publish.Node, cache string, brought Texts) (unasked []string, err error) {
	written, some := map[string][][]builder.Text{}, false
	for layer, names := range byLayer(nodes) {
		sets := w.Site.TextsOn(names)
		if brought != nil {
			more, err := brought(ctx, w.Site, names)
			if err != nil {
				return nil, err
			}
			sets = append(sets, more...)
		}
		written[layer] = release.WrittenOver(sets)
		some = some || builder.Asks(written[layer])
	}
	if !some || !w.Site.HasLayer() {
		return nil, nil
	}
	layers, err := w.Publisher.Layers(ctx, w.Policy, w.Layer)
	if err != nil {
		return nil, err
	}
	for _, l := range layers {
		why, err := builder.AskKept(ctx, l.Images, builder.Options{CacheDir: cache, Written: written[l.Digest]})
		if err != nil {
			return nil, err
		}
		if why != "" {
			unasked = append(unasked, fmt.Sprintf("the programs of layer %s were not asked about files of its nodes, since %s:"+
				" nodes ask visudo, sshd and nft before they write", l.Variant, why))
		}
	}
	return unasked, nil
}

// byLayer returns the names of nodes by the digests of their layers.
func byLayer(nodes []publish.Node) map[string][]string {
	names := map[string][]string{}
	for _, n := range nodes {
		names[n.Layer] = append(names[n.Layer], n.Name)
	}
	return names
}
