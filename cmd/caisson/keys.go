// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"crypto"
	"crypto/ecdsa"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/builder/boot"
	"github.com/caisson-os/caisson/fleet/policy"
	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/media"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/keys"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/oci/trust/chain"
	"github.com/caisson-os/caisson/spec"
)

func (a *app) keysGenerateCommand() *cobra.Command {
	var pass keys.Passphrase
	var boot bool
	c := verb("keys generate", func(_ *cobra.Command, args []string) error {
		if boot {
			info, err := keys.MakeBoot(keys.PairName(args[0]), &pass, now())
			if err == nil && !info.Encrypted {
				a.say("%s is not encrypted: who has the file can sign for these machines", info.Private)
			}
			return a.print(info, err)
		}
		key, err := sign.Generate()
		if err != nil {
			return err
		}
		return a.pair(key, args[0], &pass)
	})
	passphraseFlag(c.Flags(), &pass)
	c.Flags().BoolVar(&boot, "boot", false, "make a boot key: RSA-2048, with a certificate")
	return c
}

func (a *app) keysImportCommand() *cobra.Command {
	var pass keys.Passphrase
	c := verb("keys import", func(_ *cobra.Command, args []string) error {
		key, err := keys.Open(args[0], &pass)
		if err != nil {
			return err
		}
		return a.pair(key, args[1], &pass)
	})
	passphraseFlag(c.Flags(), &pass)
	return c
}

func (a *app) keysShowCommand() *cobra.Command {
	var pass keys.Passphrase
	c := verb("keys show", func(_ *cobra.Command, args []string) error {
		text, err := os.ReadFile(args[0])
		if err != nil {
			return fmt.Errorf("read key: %w", err)
		}
		if c, err := chain.Parse(text); err == nil {
			return a.print(policy.VersionsOf(c))
		}
		return a.print(keys.InfoOf(args[0], text, &pass))
	})
	passphraseFlag(c.Flags(), &pass)
	return c
}

// pair writes both halves of a key, and says what was written.
func (a *app) pair(key *ecdsa.PrivateKey, name string, pass *keys.Passphrase) error {
	info, err := keys.MakePair(key, keys.PairName(name), pass)
	if err == nil && !info.Encrypted {
		a.say("%s is not encrypted: with CAISSON_PASSPHRASE set 'caisson keys import %s NAME' makes a pair that is", info.Private, info.Private)
	}
	return a.print(info, err)
}

func (a *app) keysEnrollImageCommand() *cobra.Command {
	var k media.FirmwareKeys
	var out string
	c := verb("keys enroll-image", func(c *cobra.Command, _ []string) error {
		result, err := k.Enroll(c.Context(), out, now())
		if err == nil && len(k.DB) == 1 {
			a.say("db has what %s holds and no more: cards whose firmware the vendor signed are not started; keep the vendor's "+
				"by a second --db", k.DB[0])
		}
		return a.print(result, err)
	})
	c.Flags().StringVar(&k.PK, "pk", "", "`NAME` of the pair that becomes PK: NAME.key and NAME.crt")
	c.Flags().StringVar(&k.KEK, "kek", "", "`NAME` of the pair that becomes KEK")
	c.Flags().StringArrayVar(&k.DB, "db", nil, "`FILE` with certificates whose programs are started")
	c.Flags().StringArrayVar(&k.KEKToo, "kek-too", nil, "`FILE` with certificates of others who may change db and dbx")
	c.Flags().StringVar(&k.Manager, "systemd-boot", boot.UEFIDir+"/systemd-bootx64.efi", "`FILE` of systemd-boot 252 or newer, unsigned")
	c.Flags().StringVar(&out, "out", "", "`FILE` to write")
	requireFlags(c, "pk", "kek", "db", "out")
	passphraseFlag(c.Flags(), &k.Passphrase)
	return c
}

func (a *app) keysRevokeLoaderCommand() *cobra.Command {
	var k media.FirmwareKeys
	var out string
	c := verb("keys revoke-loader", func(_ *cobra.Command, files []string) error {
		return a.print(k.Revoke(files, out, now()))
	})
	c.Flags().StringVar(&k.KEK, "kek", "", "`NAME` of the pair that is KEK")
	c.Flags().StringVar(&out, "out", "", "`FILE` to write")
	requireFlags(c, "kek", "out")
	passphraseFlag(c.Flags(), &k.Passphrase)
	return c
}

// rotating are the flags of a verb that changes a site's keys.
type rotating struct {
	policy.Change
	destination
	dry, looks bool // looks: it signs nothing
	who        signers
	service    asking
}

func (a *app) keysRotateCommand() *cobra.Command {
	var r rotating
	c := verb("keys rotate", func(c *cobra.Command, args []string) error { return r.run(c.Context(), a, args) })
	r.flags(a, c)
	r.dryFlag(c)
	c.Flags().BoolVar(&r.Anew, "begin-anew", false, "begin another chain, with the site's root keys alone: for root keys "+
		"that are lost or stolen; nodes follow it once they boot by boot files that are written again")
	c.Flags().BoolVar(&r.Yes, "yes", false, "begin anew though nodes are left behind until then")
	return c
}

func (a *app) keysRevokeCommand() *cobra.Command {
	r := rotating{Change: policy.Change{Revoke: true}}
	c := verb("keys revoke", func(c *cobra.Command, args []string) error { return r.run(c.Context(), a, args) })
	r.flags(a, c)
	r.dryFlag(c)
	c.Flags().StringVar(&r.Layers, "layers", "", "`DIGEST` of the index that layer:current leads to, to sign it again on "+
		"your word: where a release key was stolen and caisson.memory does not have it, whoever has the key may have made it current")
	return c
}

func (r *rotating) dryFlag(c *cobra.Command) {
	c.Flags().BoolVarP(&r.dry, "dry-run", "n", false, "do as 'keys rehearse' does: make it in memory, with all keys, and write nothing")
}

func (r *rotating) flags(a *app, c *cobra.Command) {
	f := c.Flags()
	r.destination.flags(a, f, toSite)
	f.StringArrayVar(&r.Root, "root-key", nil, "sign the version with the root key in `FILE` or of command:CMD; those of "+
		"both versions, as many as their thresholds")
	f.StringVar(&r.Release, "release-key", "", "sign layers with the release key in `FILE` or of command:CMD, where release keys change")
	f.StringVar(&r.Epoch, "epoch-key", "", "permit the present epoch with the epoch key in `FILE` or of command:CMD, where epoch keys change")
	f.StringVar(&r.Reason, "reason", "", "why, for people")
	f.StringArrayVar(&r.Lose, "lose", nil, "go on though `NODE` refuses what is published after this, until it boots by "+
		"a loader that follows the keys")
	r.service.flags(f)
	r.who.keyFlags(f)
}

// open reads the site and connects to where it is published.
func (r *rotating) open(a *app, names []string) (*publish.Publisher, error) {
	s, err := a.loadNamed(names...)
	if err != nil {
		return nil, err
	}
	r.To = r.to
	if err := r.Read(s); err != nil {
		return nil, err
	}
	r.to = r.To
	var by []crypto.Signer
	if !r.looks {
		if by, err = r.who.load(a, s.Trust().Operator); err != nil {
			return nil, err
		}
	}
	p, err := r.destination.open(a, names[0], by, true)
	if err == nil {
		p.Dry = r.dry
	}
	return p, err
}

func (r *rotating) run(ctx context.Context, a *app, names []string) error {
	if r.Revoke && r.Reason == "" {
		return errNoReason
	}
	p, err := r.open(a, names)
	if err != nil {
		return err
	}
	r.Passphrase, r.Known = &r.who.passphrase, r.service.KeysKnown
	out, err := r.Run(ctx, p)
	if err != nil || out == nil {
		return err
	}
	return a.printTold(out, nil)
}

func (a *app) keysPlanCommand() *cobra.Command {
	r := rotating{looks: true}
	c := verb("keys plan", func(c *cobra.Command, args []string) error {
		p, err := r.open(a, args)
		if err != nil {
			return err
		}
		out, err := r.Plan(c.Context(), p)
		if err != nil {
			return err
		}
		if err := r.service.Hear(c.Context(), out.Hear); err != nil {
			return err
		}
		return cmp.Or(a.show(out, func() {
			out.Write(a.out)
			a.say("fleet %s is at version %d of the keys", out.Fleet, out.Version)
			if out.Silent > 0 {
				a.say("%s did not report a key version", plain.Count(out.Silent, "node"))
			}
		}), drift(out.Due()))
	})
	r.service.flags(c.Flags())
	r.looking(a, c.Flags(), toSite)
	return c
}

func (a *app) keysRehearseCommand() *cobra.Command {
	r := rotating{dry: true}
	c := verb("keys rehearse", func(c *cobra.Command, args []string) error { return r.run(c.Context(), a, args) })
	r.flags(a, c)
	return c
}

func (a *app) keysPullCommand() *cobra.Command {
	r := rotating{looks: true}
	c := verb("keys pull", func(c *cobra.Command, args []string) error {
		p, err := r.open(a, args)
		if err != nil {
			return err
		}
		now, err := r.Pull(c.Context(), p)
		if err != nil {
			return err
		}
		return a.print(policy.VersionsOf(now))
	})
	r.looking(a, c.Flags(), toSite)
	return c
}

// rescued is the output of rescue -o json.
type rescued struct {
	Fleet   string   `json:"fleet"`
	Node    string   `json:"node"`
	Names   []string `json:"names"` // by which the machine may take it
	Opens   []string `json:"opens"` // ssh, console
	Seconds int64    `json:"seconds"`
	Place   string   `json:"place"` // where it was published, or the file
}

// rescuing are the flags of rescue.
type rescuing struct {
	policy.Rescue
	destination
	file string
	who  signers
}

func (a *app) rescueCommand() *cobra.Command {
	var r rescuing
	c := verb("rescue", func(c *cobra.Command, args []string) error {
		return r.run(c.Context(), a, args[:len(args)-1], args[len(args)-1])
	})
	f := c.Flags()
	f.StringVar(&r.Code, "code", "", "the `CODE` that the node shows")
	f.DurationVar(&r.Lasts, "for", time.Hour, "how long access lasts, at most 24h")
	f.StringArrayVar(&r.SSHKeys, "ssh-key", nil, "let root in by the public SSH keys in `FILE`")
	f.BoolVar(&r.Console, "console", false, "open a root shell on the console")
	f.StringVar(&r.Reason, "reason", "", "why, for those who find it in the node's journal")
	f.StringVar(&r.file, "out", "", "write it to `FILE` to carry it to the node, instead of publishing it; a CD where the name ends in .iso")
	r.who.keyFlags(f)
	r.looking(a, f, toSite)
	return c
}

func (r *rescuing) run(ctx context.Context, a *app, names []string, node string) error {
	if err := cli.Writable("--out", r.file); err != nil {
		return err
	}
	doc, err := r.Document(node, now())
	if err != nil {
		return err
	}
	s, err := a.loadNamed(names...)
	if err != nil {
		return err
	}
	trusted, err := policy.Site(s, "")
	if err != nil {
		return err
	}
	doc.Fleet = s.Name()
	out := rescued{Fleet: doc.Fleet, Node: node, Seconds: doc.Lasts, Place: r.file}
	if out.Names, err = policy.RescueNames(s, trusted, node, r.file != ""); err != nil {
		return err
	}
	by, err := r.who.load(a, s.Trust().Rescue)
	if err != nil {
		return err
	}
	if len(doc.SSHKeys) > 0 {
		out.Opens = append(out.Opens, "ssh")
	}
	if doc.Console {
		out.Opens = append(out.Opens, "console")
	}
	if r.file != "" {
		// One is enough: the hardware is what each machine knows of itself.
		out.Names = out.Names[min(1, len(out.Names)-1):][:1]
		doc.Node = out.Names[0]
		err = r.write(trusted, doc, by)
	} else {
		r.to = cmp.Or(r.to, s.Registry())
		out.Place = r.to + "/" + oci.RepoRescue + ":" + node
		var p *publish.Publisher
		if p, err = r.open(a, names[0], nil, true); err == nil {
			p.Signers = by
			err = policy.LetIn(ctx, &p.Reader, trusted, doc, out.Names)
		}
	}
	if err != nil {
		return err
	}
	return a.show(out, func() {
		a.say("%s: node %s opens %s for %s when it finds this, if it still shows the code %s", out.Place, node,
			strings.Join(out.Opens, " and "), plain.Duration(r.Lasts), doc.Code)
	})
}

// write writes the statement, or a medium that holds nothing else.
func (r *rescuing) write(trusted published.Policy, doc spec.Rescue, by []crypto.Signer) error {
	c, err := policy.SignRescue(trusted, doc, by)
	if err != nil {
		return err
	}
	if !strings.HasSuffix(r.file, ".iso") {
		return durable.WriteFile(r.file, c.SaveRescue(), 0o644)
	}
	return durable.Fill(r.file, 0o644, func(f *os.File) error {
		return media.WriteRescue(f, c.SaveRescue(), now())
	})
}
