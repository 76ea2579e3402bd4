//! The frame around all pages: the navigation, the signed-in user, and the notice from the previous page.

use http::StatusCode;
use serde::{Deserialize, Serialize};

use super::assets::{self, Assets};

/// A place in the navigation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Section {
    pub(super) path: &'static str,
    pub(super) label: &'static str,
}

pub(super) const OVERVIEW: Section = Section {
    path: "/console",
    label: "Overview",
};

pub(super) const PLAYGROUND: Section = Section {
    path: "/console/playground",
    label: "Playground",
};

pub(super) const USAGE: Section = Section {
    path: "/console/usage",
    label: "Usage",
};

pub(super) const REQUESTS: Section = Section {
    path: "/console/requests",
    label: "Requests",
};

pub(super) const KEYS: Section = Section {
    path: "/console/keys",
    label: "Keys",
};

pub(super) const MONEY: Section = Section {
    path: "/console/money",
    label: "Money",
};

pub(super) const SWARMS: Section = Section {
    path: "/console/swarms",
    label: "Swarms",
};

pub(super) const ORGANISATIONS: Section = Section {
    path: "/console/organisations",
    label: "Organisations",
};

/// The users' navigation.
const USERS: &[Section] = &[
    OVERVIEW,
    PLAYGROUND,
    USAGE,
    REQUESTS,
    KEYS,
    MONEY,
    SWARMS,
    ORGANISATIONS,
];

pub(super) const PLATFORM: Section = Section {
    path: "/console/admin",
    label: "Platform",
};

pub(super) const MODELS: Section = Section {
    path: "/console/admin/models",
    label: "Models",
};

pub(super) const ALL_REQUESTS: Section = Section {
    path: "/console/admin/requests",
    label: "All requests",
};

pub(super) const PEOPLE: Section = Section {
    path: "/console/admin/users",
    label: "Users",
};

pub(super) const VOUCHERS: Section = Section {
    path: "/console/admin/vouchers",
    label: "Vouchers",
};

pub(super) const ALL_SWARMS: Section = Section {
    path: "/console/admin/swarms",
    label: "All swarms",
};

pub(super) const REMOTE_TOOLS: Section = Section {
    path: "/console/admin/tools",
    label: "Remote tools",
};

pub(super) const PLUGINS: Section = Section {
    path: "/console/admin/plugins",
    label: "Plugins",
};

pub(super) const LOCKOUTS: Section = Section {
    path: "/console/admin/lockouts",
    label: "Lockouts",
};

pub(super) const WEBHOOKS: Section = Section {
    path: "/console/admin/webhooks",
    label: "Webhooks",
};

pub(super) const AUDIT: Section = Section {
    path: "/console/admin/audit",
    label: "Audit",
};

/// The administrators' additional navigation.
const ADMINISTRATORS: &[Section] = &[
    PLATFORM,
    ALL_REQUESTS,
    ALL_SWARMS,
    MODELS,
    PEOPLE,
    VOUCHERS,
    PLUGINS,
    REMOTE_TOOLS,
    LOCKOUTS,
    WEBHOOKS,
    AUDIT,
];

/// The frame around a page.
pub(super) struct Frame {
    pub(super) title: String,
    section: Option<Section>,
    pub(super) viewer: Option<Viewer>,
    pub(super) flash: Option<Flash>,
}

/// The signed-in user.
pub(super) struct Viewer {
    pub(super) user_id: String,
    /// The name of the organisation for which the user acts.
    pub(super) organisation: Option<String>,
    pub(super) plan: String,
    pub(super) is_admin: bool,
    pub(super) form_token: String,
}

/// A notice about the action on the previous page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Flash {
    pub(super) is_good: bool,
    pub(super) text: String,
}

pub(super) struct NavigationLink {
    pub(super) path: &'static str,
    pub(super) label: &'static str,
    pub(super) is_current: bool,
}

impl Frame {
    /// Makes the frame of a section's page for the signed-in user.
    pub(super) fn new(
        title: impl Into<String>,
        section: Section,
        viewer: Viewer,
        flash: Option<Flash>,
    ) -> Self {
        Self {
            title: title.into(),
            section: Some(section),
            viewer: Some(viewer),
            flash,
        }
    }

    /// Makes the frame of a public page.
    pub(super) fn bare(title: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            section: None,
            viewer: None,
            flash: None,
        }
    }

    /// Returns the value of every form's hidden field `form_token`.
    pub(super) fn form_token(&self) -> &str {
        let viewer = self.viewer.as_ref();
        viewer.map_or("", |viewer| &viewer.form_token)
    }

    pub(super) fn assets(&self) -> &'static Assets {
        assets::all()
    }

    pub(super) fn links(&self) -> Vec<NavigationLink> {
        self.links_of(USERS)
    }

    /// Returns the administrators' links; empty for other users.
    pub(super) fn admin_links(&self) -> Vec<NavigationLink> {
        match &self.viewer {
            Some(viewer) if viewer.is_admin => self.links_of(ADMINISTRATORS),
            _ => Vec::new(),
        }
    }

    fn links_of(&self, sections: &[Section]) -> Vec<NavigationLink> {
        let link = |section: &Section| NavigationLink {
            path: section.path,
            label: section.label,
            is_current: self.section == Some(*section),
        };
        sections.iter().map(link).collect()
    }
}

impl Flash {
    /// Makes a notice of success.
    pub(super) fn good(text: impl Into<String>) -> Self {
        Self {
            is_good: true,
            text: text.into(),
        }
    }

    /// Makes a notice of failure.
    pub(super) fn bad(text: impl Into<String>) -> Self {
        Self {
            is_good: false,
            text: text.into(),
        }
    }
}

/// Returns the title of an error's page.
pub(super) fn title_of(status: StatusCode) -> &'static str {
    match status {
        StatusCode::NOT_FOUND => "Not found",
        StatusCode::FORBIDDEN => "Not allowed",
        StatusCode::TOO_MANY_REQUESTS => "Too many requests",
        status if status.is_server_error() => "Server error",
        _ => "The request failed",
    }
}
