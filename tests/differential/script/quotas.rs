//! Client quotas, SCRAM credentials, ACLs, delegation tokens.

use bytes::Bytes;
use kafka_protocol::messages::create_acls_request::AclCreation;
use kafka_protocol::messages::create_delegation_token_request::CreatableRenewers;
use kafka_protocol::messages::delete_acls_request::DeleteAclsFilter;
use kafka_protocol::messages::describe_client_quotas_request::ComponentData;
use kafka_protocol::messages::describe_delegation_token_request::DescribeDelegationTokenOwner;
use kafka_protocol::messages::describe_user_scram_credentials_request::UserName;
use kafka_protocol::messages::{
    AlterClientQuotasRequest, AlterUserScramCredentialsRequest, CreateAclsRequest,
    CreateDelegationTokenRequest, DeleteAclsRequest, DescribeAclsRequest,
    DescribeClientQuotasRequest, DescribeDelegationTokenRequest,
    DescribeUserScramCredentialsRequest, ExpireDelegationTokenRequest, RenewDelegationTokenRequest,
    alter_client_quotas_request, alter_user_scram_credentials_request,
};
use kafka_protocol::protocol::StrBytes;

use crate::peer::Peer;

pub fn ask(peer: &mut Peer) {
    quotas(peer);
    credentials(peer);
    acls(peer);
    tokens(peer);
}

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

/// Type and name of one part of an entity.
type Part<'a> = (&'a str, Option<&'a str>);

/// A quota and its value; none removes it.
type Quota<'a> = (&'a str, Option<f64>);

fn altering(entries: &[(&[Part<'_>], &[Quota<'_>])]) -> AlterClientQuotasRequest {
    use alter_client_quotas_request::{EntityData, EntryData, OpData};
    let entries = entries.iter().map(|(parts, quotas)| {
        let parts = parts.iter().map(|(kind, name)| {
            EntityData::default().with_entity_type(text(kind)).with_entity_name(name.map(text))
        });
        let quotas = quotas.iter().map(|(key, value)| {
            OpData::default()
                .with_key(text(key))
                .with_value(value.unwrap_or_default())
                .with_remove(value.is_none())
        });
        EntryData::default().with_entity(parts.collect()).with_ops(quotas.collect())
    });
    AlterClientQuotasRequest::default().with_entries(entries.collect())
}

fn quotas(peer: &mut Peer) {
    const RATE: &str = "producer_byte_rate";
    const SHARE: &str = "request_percentage";
    const CONNECTIONS: &str = "connection_creation_rate";
    let ann: &[Part<'_>] = &[("user", Some("ann"))];
    let rows: &[(&str, &[Part<'_>], &[Quota<'_>])] = &[
        ("of a user", ann, &[(RATE, Some(1000.0)), (SHARE, Some(12.5))]),
        ("of a user again", ann, &[(RATE, Some(1000.0))]),
        ("of a user no more", ann, &[(SHARE, None), (CONNECTIONS, None)]),
        ("of all users", &[("user", None)], &[("consumer_byte_rate", Some(2e15))]),
        ("of a client", &[("client-id", Some("app"))], &[(SHARE, Some(0.5))]),
        (
            "of both",
            &[("user", Some("ann")), ("client-id", None)],
            &[("controller_mutation_rate", Some(1.5))],
        ),
        ("of an address", &[("ip", Some("127.0.0.1"))], &[(CONNECTIONS, Some(5e5))]),
        ("of all addresses", &[("ip", None)], &[(CONNECTIONS, Some(6e5))]),
        ("of nothing", ann, &[]),
        ("of nobody", &[], &[(RATE, Some(1.0))]),
        ("of an unknown type", &[("role", Some("a"))], &[(RATE, Some(1.0))]),
        ("of an empty name", &[("user", Some(""))], &[(RATE, Some(1.0))]),
        ("of an address and a user", &[("ip", None), ("user", None)], &[(CONNECTIONS, Some(1.0))]),
        ("of a bad address", &[("ip", Some("a b"))], &[(CONNECTIONS, Some(1.0))]),
        ("of an unknown quota", ann, &[("no.such", Some(1.0))]),
        ("of an address's quota", ann, &[(CONNECTIONS, Some(1.0))]),
        ("of zero", ann, &[(RATE, Some(0.0))]),
        ("below zero", ann, &[(SHARE, Some(-1.0))]),
        ("of a fraction", ann, &[(RATE, Some(1.5))]),
        ("of too much", ann, &[(RATE, Some(1e19))]),
        ("of too many", &[("ip", None)], &[(CONNECTIONS, Some(3e9))]),
        ("of one twice", ann, &[(RATE, Some(1.0)), (RATE, Some(2.0))]),
    ];
    for version in [0, 1] {
        for (case, parts, quotas) in rows {
            let case = format!("AlterClientQuotas {case}");
            peer.ask(&case, version, &altering(&[(parts, quotas)]));
        }
        let good: (&[Part<'_>], &[Quota<'_>]) = (ann, &[(RATE, Some(1000.0))]);
        peer.ask("AlterClientQuotas of one entity twice", version, &altering(&[good, good]));
        let bad: (&[Part<'_>], &[Quota<'_>]) = (&[("user", Some("bob"))], &[(RATE, Some(-1.0))]);
        peer.ask("AlterClientQuotas of two, one bad", version, &altering(&[good, bad]));
        peer.ask("AlterClientQuotas of none", version, &altering(&[]));
        let mut request = altering(&[(ann, &[(RATE, Some(7.0))])]);
        request.validate_only = true;
        peer.ask("AlterClientQuotas to validate", version, &request);
    }
    described_quotas(peer);
}

fn described_quotas(peer: &mut Peer) {
    // What was altered last is told last: in Kafka that comes later.
    let seen = [("ip", 1, None)];
    let asking = |filters: &[(&str, i8, Option<&str>)], strict: bool| {
        let components = filters.iter().map(|(kind, how, name)| {
            let mut component =
                ComponentData::default().with_entity_type(text(kind)).with_match_type(*how);
            component._match = name.map(text);
            component
        });
        DescribeClientQuotasRequest::default()
            .with_components(components.collect())
            .with_strict(strict)
    };
    peer.until("a quota", |peer| {
        let answer = peer.call(1, &asking(&seen, false));
        answer.entries.is_some_and(|entries| !entries.is_empty())
    });
    type Filter<'a> = (&'a str, i8, Option<&'a str>);
    let rows: &[(&str, &[Filter<'_>], bool)] = &[
        ("of a user", &[("user", 0, Some("ann"))], false),
        ("of a user alone", &[("user", 0, Some("ann"))], true),
        ("of all users", &[("user", 1, None)], true),
        ("of any client", &[("client-id", 2, None)], true),
        ("of an address", &[("ip", 0, Some("127.0.0.1"))], false),
        ("of nobody", &[("user", 0, Some("eve"))], false),
        ("of nothing, strictly", &[], true),
        ("of an empty type", &[("", 2, None)], false),
        ("of an unknown type", &[("role", 2, None)], false),
        ("of a type twice", &[("user", 2, None), ("user", 1, None)], false),
        ("of no name", &[("user", 0, None)], false),
        ("of a default with a name", &[("user", 1, Some("a"))], false),
        ("of any with a name", &[("user", 2, Some("a"))], false),
        ("of an unknown match", &[("user", 9, None)], false),
        ("of an address and a user", &[("ip", 2, None), ("user", 2, None)], false),
    ];
    for version in [0, 1] {
        for (case, filters, strict) in rows {
            let case = format!("DescribeClientQuotas {case}");
            peer.ask(&case, version, &asking(filters, *strict));
        }
        let all = peer.call(version, &asking(&[], false));
        let count = all.entries.map_or(0, |entries| entries.len());
        peer.keep_word(&format!("DescribeClientQuotas of all v{version}"), &count.to_string());
    }
}

fn credentials(peer: &mut Peer) {
    use alter_user_scram_credentials_request::{ScramCredentialDeletion, ScramCredentialUpsertion};
    let altering = |deletions: &[(&str, i8)], upsertions: &[(&str, i8, i32)]| {
        let deletions = deletions.iter().map(|(user, mechanism)| {
            ScramCredentialDeletion::default().with_name(text(user)).with_mechanism(*mechanism)
        });
        let upsertions = upsertions.iter().map(|(user, mechanism, iterations)| {
            ScramCredentialUpsertion::default()
                .with_name(text(user))
                .with_mechanism(*mechanism)
                .with_iterations(*iterations)
                .with_salt(Bytes::from_static(b"salt"))
                .with_salted_password(Bytes::from_static(b"salted password"))
        });
        AlterUserScramCredentialsRequest::default()
            .with_deletions(deletions.collect())
            .with_upsertions(upsertions.collect())
    };
    let asking = |users: Option<&[&str]>| {
        let user = |user: &&str| UserName::default().with_name(text(user));
        let users = users.map(|users| users.iter().map(user).collect());
        DescribeUserScramCredentialsRequest::default().with_users(users)
    };
    peer.ask("DescribeUserScramCredentials of none", 0, &asking(None));
    for (case, request) in [
        ("of nobody", altering(&[], &[])),
        ("that sets", altering(&[], &[("ann", 1, 4096), ("bob", 2, 16_384)])),
        ("that adds", altering(&[], &[("ann", 2, 8192)])),
        ("with few iterations", altering(&[], &[("eve", 1, 4095)])),
        ("with many iterations", altering(&[], &[("eve", 1, 16_385)])),
        ("of an empty user", altering(&[], &[("", 1, 4096)])),
        ("of mechanism 0", altering(&[], &[("eve", 0, 4096)])),
        ("of mechanism 3", altering(&[("ann", 3)], &[])),
        ("of a stranger's", altering(&[("eve", 1)], &[])),
        ("of one twice", altering(&[("ann", 1)], &[("ann", 1, 4096)])),
        ("of one thrice", altering(&[], &[("ann", 1, 4096), ("ann", 2, 4096), ("ann", 1, 1)])),
        ("of a good and a bad one", altering(&[("eve", 1)], &[("joe", 1, 4096)])),
        ("that removes", altering(&[("bob", 2)], &[])),
    ] {
        peer.ask(&format!("AlterUserScramCredentials {case}"), 0, &request);
    }
    peer.until("bob is gone", |peer| {
        let answer = peer.call(0, &asking(Some(&["bob"])));
        answer.results[0].error_code == 91
    });
    for (case, request) in [
        ("of all", asking(None)),
        ("of all by an empty list", asking(Some(&[]))),
        ("of two", asking(Some(&["joe", "ann"]))),
        ("of a stranger", asking(Some(&["eve", "ann"]))),
        ("of one twice", asking(Some(&["ann", "ann", "joe"]))),
        ("of an empty name", asking(Some(&[""]))),
    ] {
        peer.ask(&format!("DescribeUserScramCredentials {case}"), 0, &request);
    }
}

fn acls(peer: &mut Peer) {
    let creation = |operation: i8| {
        AclCreation::default()
            .with_resource_type(2)
            .with_resource_name(text("t"))
            .with_resource_pattern_type(3)
            .with_principal(text("User:ann"))
            .with_host(text("*"))
            .with_operation(operation)
            .with_permission_type(3)
    };
    let filter = |operation: i8| {
        DeleteAclsFilter::default()
            .with_resource_type_filter(1)
            .with_resource_name_filter(None)
            .with_pattern_type_filter(1)
            .with_principal_filter(None)
            .with_host_filter(None)
            .with_operation(operation)
            .with_permission_type(1)
    };
    for version in [1, 2, 3] {
        for operation in [1, 3, 0, 99] {
            let request = DescribeAclsRequest::default()
                .with_resource_type_filter(1)
                .with_resource_name_filter(None)
                .with_pattern_type_filter(1)
                .with_principal_filter(None)
                .with_host_filter(None)
                .with_operation(operation)
                .with_permission_type(1);
            peer.ask(&format!("DescribeAcls of operation {operation}"), version, &request);
            let two = vec![creation(3), creation(operation)];
            let request = CreateAclsRequest::default().with_creations(two);
            peer.ask(&format!("CreateAcls of operation {operation}"), version, &request);
            let two = vec![filter(3), filter(operation)];
            let request = DeleteAclsRequest::default().with_filters(two);
            peer.ask(&format!("DeleteAcls of operation {operation}"), version, &request);
        }
        peer.ask("CreateAcls of none", version, &CreateAclsRequest::default());
        peer.ask("DeleteAcls of none", version, &DeleteAclsRequest::default());
    }
}

fn tokens(peer: &mut Peer) {
    let renewer = CreatableRenewers::default()
        .with_principal_type(text("User"))
        .with_principal_name(text("a"));
    for version in [1, 2, 3] {
        let mut request = CreateDelegationTokenRequest::default()
            .with_renewers(vec![renewer.clone()])
            .with_max_lifetime_ms(-1);
        request.owner_principal_type = (version >= 3).then(|| text("User"));
        request.owner_principal_name = (version >= 3).then(|| text("ann"));
        if version < 3 {
            request.owner_principal_type = Some(StrBytes::default());
            request.owner_principal_name = Some(StrBytes::default());
        }
        peer.ask("CreateDelegationToken", version, &request);
        if version >= 3 {
            request.owner_principal_type = None;
            request.owner_principal_name = None;
            peer.ask("CreateDelegationToken of one's own", version, &request);
        }
        let owner = DescribeDelegationTokenOwner::default()
            .with_principal_type(text("User"))
            .with_principal_name(text("ann"));
        for owners in [None, Some(vec![]), Some(vec![owner])] {
            let request = DescribeDelegationTokenRequest::default().with_owners(owners.clone());
            let count = owners.map_or(-1, |owners| owners.len() as i32);
            peer.ask(&format!("DescribeDelegationToken of {count}"), version, &request);
        }
    }
    for version in [1, 2] {
        let hmac = Bytes::from_static(b"0123");
        let request = RenewDelegationTokenRequest::default().with_hmac(hmac.clone());
        peer.ask("RenewDelegationToken", version, &request);
        let request = ExpireDelegationTokenRequest::default().with_hmac(hmac);
        peer.ask("ExpireDelegationToken", version, &request);
    }
}
