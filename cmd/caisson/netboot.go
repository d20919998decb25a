// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/builder/boot"
	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
)

// netbooted is what netboot -o json prints.
type netbooted struct {
	Layer string   `json:"layer"`
	Files []string `json:"files"`
}

// netbootFlags are the flags of netboot.
type netbootFlags struct {
	registry access
	from     string
	out      string
	layer    string
	httpURL  string
	ask      string
	askPlain bool
	mirrors  []string
	proxy    string
	args     []string
}

func (a *app) netbootCommand() *cobra.Command {
	var f netbootFlags
	c := &cobra.Command{
		Use:   "netboot FILE… --from REF --out DIR",
		Short: "Write what machines boot over the network",
		Long: "Write what machines boot over the network: kernel, initrd, site.cpio (whom the nodes\n" +
			"believe and which registry they ask) and boot.ipxe, which loads the three.\n\n" +
			"PXE trusts its network: the loader is as safe as the wire it came over, unless firmware\n" +
			"verifies it. Everything that the loader fetches is signed.",
		Example: "  caisson netboot site.yaml --from oci:out --out boot --registry 192.0.2.1:5000/fleet --registry-plain-http\n  caisson netboot serve boot",
		Args:    cobra.MinimumNArgs(1),
		RunE:    func(c *cobra.Command, names []string) error { return a.netboot(c.Context(), f, names) },
	}
	f.registry.flags(c.Flags())
	c.Flags().StringVar(&f.from, "from", "", "registry or layout with the layer (the site's own when empty)")
	c.Flags().StringVar(&f.out, "out", "", "folder to write")
	c.Flags().StringVar(&f.layer, "layer", "", "digest of the layer whose kernel loads (the current default variant when empty)")
	c.Flags().StringVar(&f.httpURL, "http-url", "", "where the folder is served, for boot.ipxe (beside the script when empty)")
	c.Flags().StringVar(&f.ask, "registry", "", "registry that the nodes ask (the site's own when empty)")
	c.Flags().BoolVar(&f.askPlain, "registry-plain-http", false, "the nodes talk HTTP to it")
	c.Flags().StringArrayVar(&f.mirrors, "mirror", nil, "registry that the nodes ask when that one does not answer; several, in order")
	c.Flags().StringVar(&f.proxy, "proxy", "", "HTTP proxy `URL` between the nodes and the registry")
	c.Flags().StringArrayVar(&f.args, "kernel-arg", nil, "further argument of the loader's kernel; nodes keep only consoles")
	_ = c.MarkFlagRequired("out") // the flag stands above
	c.AddCommand(a.netbootServeCommand())
	return c
}

func (a *app) netboot(ctx context.Context, f netbootFlags, names []string) error {
	s, err := a.loadSite(names...)
	if err != nil {
		return err
	}
	if f.from == "" {
		f.from = s.Registry()
	}
	b, err := bootstrap(f, s)
	if err != nil {
		return err
	}
	cpio, err := boot.SiteCPIO(b)
	if err != nil {
		return err
	}
	reg, err := f.registry.existing(f.from)
	if err != nil {
		return err
	}
	digest := f.layer
	if digest == "" {
		if digest, err = currentLayer(ctx, reg, "default"); err != nil {
			return err
		}
	}
	l, _, err := readLayer(ctx, reg, digest)
	if err != nil {
		return fmt.Errorf("layer %s: %w", digest, err)
	}
	if err := a.checkRelease(ctx, reg, s, digest); err != nil {
		return err
	}
	if err := os.MkdirAll(f.out, 0o755); err != nil {
		return err
	}
	blobs := map[string]oci.Descriptor{
		"kernel": {MediaType: oci.TypeKernel, Digest: l.Kernel.Digest, Size: l.Kernel.Size},
		"initrd": {MediaType: oci.TypeInitrd, Digest: l.Initrd.Digest, Size: l.Initrd.Size},
	}
	// All blobs first, under other names: a kernel beside the initrd of another
	// layer boots nothing.
	for name, d := range blobs {
		fresh := filepath.Join(f.out, "."+name+".new")
		defer os.Remove(fresh) // when it did not come to the renames
		if err := saveBlob(ctx, reg, d, fresh); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	for name := range blobs {
		if err := os.Rename(filepath.Join(f.out, "."+name+".new"), filepath.Join(f.out, name)); err != nil {
			return err
		}
	}
	if err := durable.WriteFile(filepath.Join(f.out, "site.cpio"), cpio, 0o644); err != nil {
		return err
	}
	script := ipxeScript(f.httpURL, slices.Concat(b.KernelArgs, f.args))
	if err := durable.WriteFile(filepath.Join(f.out, "boot.ipxe"), []byte(script), 0o644); err != nil {
		return err
	}
	files := []string{"boot.ipxe", "initrd", "kernel", "site.cpio"}
	if a.json() {
		return cli.JSON(a.out, netbooted{Layer: digest, Files: files})
	}
	for _, name := range files {
		fmt.Fprintln(a.out, filepath.Join(f.out, name))
	}
	return nil
}

// ipxeScript loads the two archives one after the other: the kernel unpacks both
// into one tree. BIOS and UEFI differ in how they learn of them, this does for both.
func ipxeScript(url string, args []string) string {
	if url != "" {
		url = strings.TrimRight(url, "/") + "/"
	}
	return fmt.Sprintf(`#!ipxe
kernel %[1]skernel initrd=initrd initrd=site.cpio BOOTIF=01-${netX/mac:hexhyp} %[2]s || goto failed
initrd --name initrd %[1]sinitrd || goto failed
initrd --name site.cpio %[1]ssite.cpio || goto failed
boot || goto failed

:failed
echo caisson: could not load the node's loader, trying again in 10 seconds
sleep 10
chain --replace %[1]sboot.ipxe || goto failed
`, url, strings.Join(spec.KernelLine(args), " "))
}

// bootstrap says whom the site's nodes believe.
func bootstrap(f netbootFlags, s *site.Site) (spec.Bootstrap, error) {
	ask := f.ask
	if ask == "" {
		ask = s.Registry()
	}
	b := spec.Bootstrap{APIVersion: spec.APIVersion, Kind: spec.KindBootstrap, Fleet: s.Name(), Registry: ask,
		PlainHTTP: f.askPlain, Mirrors: f.mirrors, Proxy: f.proxy, Threshold: s.Trust().Threshold, KernelArgs: s.KernelArgs()}
	if ref, err := oci.ParseRef(ask); err != nil {
		return b, fmt.Errorf("registry of the nodes: %w", err)
	} else if ref.Layout != "" {
		return b, cli.Usage("name with --registry what serves it, see 'caisson serve'", "nodes cannot ask a folder: registry is %q", ask)
	}
	for _, m := range f.mirrors {
		if ref, err := oci.ParseRef(m); err != nil || ref.IsLayout() {
			return b, cli.Usage("host[:port]/prefix", "--mirror: %q is no registry", m)
		}
	}
	o, err := f.registry.options(ask)
	if err != nil {
		return b, err
	}
	b.CAs = o.CAs
	for _, name := range s.Trust().Operator {
		pem, err := os.ReadFile(name)
		if err != nil {
			return b, cli.WithHint(fmt.Errorf("operator key: %w", err), "'caisson keys' makes keys, trust.keys.operator of the site names them")
		}
		b.Keys = append(b.Keys, string(pem))
	}
	if _, err := sign.ParsePublics(b.Keys); err != nil {
		return b, fmt.Errorf("operator keys: %w", err)
	}
	epoch, err := readPublics(s.Trust().Epoch)
	if err != nil {
		return b, fmt.Errorf("epoch keys: %w", err)
	}
	for _, k := range epoch {
		b.EpochKeys = append(b.EpochKeys, string(sign.MarshalPublic(k)))
	}
	return b, nil
}

// currentLayer finds a variant's manifest below layer:current.
func currentLayer(ctx context.Context, reg *registry.Registry, variant string) (string, error) {
	raw, _, err := reg.Manifest(ctx, oci.RepoLayer, "current")
	if errors.Is(err, oci.ErrNotFound) {
		return "", cli.WithHint(fmt.Errorf("%s holds no current layer", reg.Ref()), "'caisson build' makes one")
	}
	if err != nil {
		return "", fmt.Errorf("read the current layers: %w", err)
	}
	index, err := oci.ParseIndex(raw)
	if err != nil {
		return "", err
	}
	for _, d := range index.Manifests {
		if d.Annotations[oci.AnnotationVariant] == variant {
			return d.Digest, nil
		}
	}
	if len(index.Manifests) == 0 {
		return "", errors.New("the current index has no layers")
	}
	return index.Manifests[0].Digest, nil
}

// saveBlob writes a verified blob to a file.
func saveBlob(ctx context.Context, reg *registry.Registry, d oci.Descriptor, name string) error {
	r, _, err := reg.Blob(ctx, oci.RepoLayer, d.Digest)
	if err != nil {
		return err
	}
	defer r.Close() // only read
	return durable.Write(name, 0o644, func(w io.Writer) error {
		_, err := io.Copy(w, io.LimitReader(r, oci.MaxBlob))
		return err
	})
}

// checkRelease wants the release key's signature on a layer, where the site has
// such a key.
func (a *app) checkRelease(ctx context.Context, reg *registry.Registry, s *site.Site, digest string) error {
	keys, err := readPublics(s.Trust().Release)
	if errors.Is(err, os.ErrNotExist) {
		a.say("warning: %v: the layer's signature is not checked", err)
		return nil
	}
	if err != nil {
		return err
	}
	return cli.WithHint(publish.Released(ctx, reg, digest, keys), "'caisson build --key' signs what it builds")
}
