// SPDX-License-Identifier: Apache-2.0

package content

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/internal/configcheck"
	"github.com/caisson-os/caisson/layers/image"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/inventory"
	"github.com/caisson-os/caisson/spec/site/service"
)

// TextsOn returns, for each service that one of the nodes has, its files that a program of a layer is
// asked about, as of the site's own: with those on the first such node, since one may name the other.
// They are read from the image in the cache; where it is not there, that is said.
func (c *Source) TextsOn(ctx context.Context, s *site.Site, nodes []string) (sets [][]site.Text, err error) {
	services := s.Services().List
	for i := range services {
		v := &services[i]
		l, locked := s.Services().Locked(v.Name)
		at := slices.IndexFunc(s.Nodes(), func(n inventory.Node) bool { return v.Has(n) && slices.Contains(nodes, n.Name) })
		if at < 0 || !locked || !slices.ContainsFunc(v.Directories, mayBeAsked) {
			continue
		}
		if b, err := describe(c.file(l.Image.Digest)); err != nil || b != l.Image {
			c.Say("service %s: its image is not in this cache, so no program of the layer is asked about its files", v.Name)
			continue
		}
		texts, err := c.texts(ctx, v, l)
		if err != nil {
			return nil, ofService(v.Name, err)
		}
		sets = append(sets, slices.Concat(slices.Concat(s.TextsOn([]string{s.Nodes()[at].Name})...), texts))
	}
	return sets, nil
}

// asks reports whether a program is asked about a path.
func asks(name string) bool {
	argv, _ := configcheck.Question(name, "")
	return argv != nil
}

// mayBeAsked reports whether a directory, or a file, is one that such a program reads.
func mayBeAsked(d spec.ServiceDirectory) bool {
	below := []string{"", "x", "x.conf", "x.nft", "x.service"}
	return slices.ContainsFunc(below, func(name string) bool { return asks(path.Join(d.To, name)) })
}

// texts reads a service's files from its image.
func (c *Source) texts(ctx context.Context, v *service.Service, l service.Locked) (texts []site.Text, err error) {
	work, err := os.MkdirTemp(filepath.Join(c.Cache, "service"), "tmp-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	tree := filepath.Join(work, "tree")
	if err := image.Unpack(ctx, c.file(l.Image.Digest), tree); err != nil {
		return nil, err
	}
	for _, d := range v.Directories {
		from := filepath.Join(tree, d.From)
		err := filepath.WalkDir(from, func(name string, e fs.DirEntry, err error) error {
			if err != nil || !e.Type().IsRegular() {
				return err
			}
			to := path.Join(d.To, strings.TrimPrefix(name, from))
			info, err := e.Info()
			if err != nil || !asks(to) || info.Size() > 1<<20 { // no program reads that much in time
				return err
			}
			data, err := os.ReadFile(name)
			texts = append(texts, site.Text{Path: to, Content: string(data), At: v.Places()[d.To].String()})
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return texts, nil
}
