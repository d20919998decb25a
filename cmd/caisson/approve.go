// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec/site/cluster"
)

func (a *app) approveCommand() *cobra.Command {
	var fleet, plan, name, namespace string
	var why changer
	var who signers
	c := &cobra.Command{
		Use:   "approve",
		Short: "Sign that caisson-kube may publish one plan",
		Long: "Sign that caisson-kube may publish one plan, and print the PublishApproval that says so, for kubectl.\n\n" +
			"The plan is a digest, as a dry run of 'publish --from-cluster' prints it after you looked at it; the status of the\n" +
			"Site has what caisson-kube computed. It covers what each node would get, the registry, for how long and by how many\n" +
			"keys it is signed, the waves of Rollouts, and the generation that is published: the approval counts once, for nothing\n" +
			"else, and not after something else was published. Where the site needs several keys, each operator approves.\n\n" + signerHelp,
		Example: "  caisson approve --fleet metal-a --plan act:sha256:… --key keys/operator.key --reason 'new motd' | kubectl create --namespace metal-a -f -",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			bare, err := publish.ActDigest(plan)
			if err != nil {
				return err
			}
			by, err := who.load(a, nil)
			if err != nil {
				return err
			}
			b := why.by()
			statements, err := publish.Approve(by, plan, sign.ApprovalPredicate{Fleet: fleet, Author: b.Author, Reason: b.Reason, IssuedAt: now()})
			if err != nil {
				return err
			}
			if name == "" {
				if name, err = approvalName(bare, by[0].Public()); err != nil {
					return err
				}
			}
			object := cluster.NewApproval(namespace, name, cluster.ApprovalSpec{Plan: plan, Author: b.Author, Reason: b.Reason, Statements: statements})
			text, err := object.YAML()
			if err != nil {
				return err
			}
			return a.show(object, func() { _, err = a.out.Write(text) })
		},
	}
	f := c.Flags()
	f.StringVar(&fleet, "fleet", "", "the fleet's `NAME`, as the Site has it")
	f.StringVar(&plan, "plan", "", "the `DIGEST` of the plan")
	f.StringVar(&name, "name", "", "the `NAME` of the object (of the plan and the key when empty)")
	f.StringVar(&namespace, "namespace", "", "the `NAMESPACE` of the object (kubectl's when empty)")
	why.flags(f)
	who.keyFlags(f)
	cobra.CheckErr(c.MarkFlagRequired("fleet"))
	cobra.CheckErr(c.MarkFlagRequired("plan"))
	return c
}

// approvalName is of the plan and of who approves: two operators have two objects, and one who
// approves again has the same.
func approvalName(plan string, key any) (string, error) {
	v, err := sign.NewVerifier(key)
	if err != nil {
		return "", err
	}
	return digest.Hex(plan)[:12] + "-" + digest.Hex(digest.Of(v.PEM()))[:8], nil
}
